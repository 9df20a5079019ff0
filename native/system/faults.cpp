#include "system/faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <ctime>
#include <utility>

#include "system/keys.h"

namespace standpipe {
namespace {

std::vector<FaultRule> installed;
std::string log_path;
std::array<std::atomic<uint64_t>, kMostPoints> hits;

bool strikes(const FaultRule& rule, uint64_t hit, uint64_t key, int attempt) {
    return attempt < rule.tries && (rule.hit == 0 || rule.hit == hit) && rule.key.value_or(key) == key &&
           Draws(mix(rule.salt, key)).uniform() < rule.share;
}

void note(const FaultRule& rule, uint64_t key) {
    if (log_path.empty()) return;
    const std::string line = rule.name + " " + std::to_string(getpid()) + " " + std::to_string(key) + "\n";
    const int file = open(log_path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
    close(file);
}

void pause(double seconds) {
    timespec left{static_cast<time_t>(seconds), static_cast<long>(std::fmod(seconds, 1) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

void apply(const FaultRule& rule, Fault& fault) {
    using enum FaultRule::Action;
    switch (rule.action) {
        case delay: return pause(rule.delay_s);
        case kill: ::kill(getpid(), SIGKILL); return;
        case stop: ::raise(SIGSTOP); return;  // before this thread does anything else
        case exit: _exit(0);
        case cut: fault.cut = true; return;
        case damage: fault.damage = true; return;
        case raise: fault.raises = true; return;
        case error: fault.error = rule.error; return;
    }
}

}  // namespace

std::atomic<bool> detail::faults_installed{false};

void install_faults(std::vector<FaultRule> rules, std::string log) {
    installed = std::move(rules);
    log_path = std::move(log);
    // A forked process counts its own hits.
    if (!detail::faults_installed.exchange(true))
        pthread_atfork(nullptr, nullptr, [] {
            for (auto& count : hits) count = 0;
        });
}

std::vector<uint64_t> fault_hits() { return {hits.begin(), hits.end()}; }

uint64_t fault_key(std::string_view name) noexcept {
    uint64_t key = name.size();
    for (const char letter : name) key = mix(key, static_cast<unsigned char>(letter));
    return key;
}

void damage(std::span<uint8_t> bytes) noexcept {
    // The first ones, by which every format is known: damage further in may be nothing but other pixels.
    for (uint8_t& byte : bytes.first(std::min<size_t>(bytes.size(), 64))) byte = static_cast<uint8_t>(~byte);
}

Fault detail::struck(Point point, uint64_t key, int attempt) {
    const uint64_t hit = ++hits[static_cast<size_t>(point)];
    Fault fault;
    for (const FaultRule& rule : installed) {
        if (rule.point != point || !strikes(rule, hit, key, attempt)) continue;
        note(rule, key);
        apply(rule, fault);
    }
    return fault;
}

}  // namespace standpipe
