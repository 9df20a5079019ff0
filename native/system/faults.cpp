#include "system/faults.h"

#include <fcntl.h>
#include <pthread.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <climits>
#include <cmath>
#include <csignal>
#include <ctime>
#include <stdexcept>

#include "system/keys.h"

namespace standpipe {
namespace {

enum class Action { delay, kill, stop, exit, error, cut, damage, raise };

constexpr unsigned bit(Action action) { return 1u << static_cast<int>(action); }
constexpr unsigned kProcess = bit(Action::delay) | bit(Action::kill) | bit(Action::stop) | bit(Action::exit);
constexpr unsigned kSystem = kProcess | bit(Action::error);

struct KnownPoint {
    std::string_view name;
    unsigned takes;  // actions
};

constexpr KnownPoint kPoints[] = {
    {"read.open", kSystem},
    {"read.stat", kSystem},
    {"read.pread", kSystem | bit(Action::cut)},
    {"read.bytes", kProcess | bit(Action::damage)},
    {"decode.row", kProcess},
    {"index.read", kSystem},
    {"cache.read", kSystem | bit(Action::damage)},
    {"cache.disk", kSystem | bit(Action::damage)},
    {"cache.row", kSystem | bit(Action::cut)},
    {"cache.entry", kSystem},
    {"cache.entry.after", kProcess},
    {"worker.row", kProcess | bit(Action::raise)},
    {"worker.answer", kProcess | bit(Action::raise)},
    {"server.fork", kSystem},
    {"index.publish.before", kSystem},
    {"index.publish.after", kSystem},
    {"ledger.write", kSystem},
    {"cache.create", kSystem},
    {"cache.spill", kSystem},
    {"cache.link", kSystem},
    {"cache.extent", kSystem | bit(Action::raise)},
    {"cache.destroy", kSystem},
    {"cache.remove", kSystem},
    {"cache.fold", kSystem},
    {"pack.write", kSystem},
    {"pack.publish.before", kSystem},
    {"pack.publish.after", kSystem},
};
constexpr size_t kNumPoints = std::size(kPoints);

struct KnownAction {
    std::string_view name;
    Action action;
};

constexpr KnownAction kActions[] = {
    {"delay", Action::delay}, {"kill", Action::kill},      {"stop", Action::stop},   {"exit", Action::exit},
    {"short", Action::cut},   {"corrupt", Action::damage}, {"raise", Action::raise},
};

struct KnownError {
    std::string_view name;
    int number;
};

constexpr KnownError kErrors[] = {
    {"eacces", EACCES},
    {"eagain", EAGAIN},
    {"econnreset", ECONNRESET},
    {"edquot", EDQUOT},
    {"ehostdown", EHOSTDOWN},
    {"ehostunreach", EHOSTUNREACH},
    {"eio", EIO},
    {"eisdir", EISDIR},
    {"emfile", EMFILE},
    {"enetdown", ENETDOWN},
    {"enetunreach", ENETUNREACH},
    {"enfile", ENFILE},
    {"enoent", ENOENT},
    {"enomem", ENOMEM},
    {"enospc", ENOSPC},
    {"eperm", EPERM},
    {"erofs", EROFS},
    {"estale", ESTALE},
    {"etimedout", ETIMEDOUT},
};

// One of `text`'s parts between semicolons.
struct Rule {
    enum class When { always, share, hit, key };

    Point point{};
    Action action{};
    int error = 0;
    double delay_s = 0;
    When when = When::always;
    double share = 0;
    uint64_t number = 0;  // of the hit, or the key
    int tries = INT_MAX;  // of the same thing that are struck, from the first
    uint64_t salt = 0;
    std::string_view name;  // of the action, in a table above
};

struct Faults {
    std::vector<Rule> rules;
    uint64_t seed = 0;
    std::string log;
};

Faults installed;
std::array<std::atomic<uint64_t>, kNumPoints> hits;

[[noreturn]] void refuse(std::string_view item, const std::string& why) {
    throw std::invalid_argument("'" + std::string(item) + "': " + why);
}

template <typename Known, size_t size>
std::string names_of(const Known (&known)[size]) {
    std::string names;
    for (const Known& each : known) names.append(names.empty() ? "" : ", ").append(each.name);
    return names;
}

template <typename Known, size_t size>
const Known* named(const Known (&known)[size], std::string_view name) {
    const auto found = std::ranges::find(known, name, &Known::name);
    return found == std::end(known) ? nullptr : found;
}

// The whole of `text` as a number.
template <typename Number>
std::optional<Number> number_in(std::string_view text) {
    Number number{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
    if (text.empty() || error != std::errc() || end != text.data() + text.size()) return std::nullopt;
    return number;
}

// The text before the first `mark`, which is cut off `text`; without one all of it.
std::string_view cut_before(std::string_view& text, char mark) {
    const size_t at = std::min(text.find(mark), text.size());
    const std::string_view before = text.substr(0, at);
    text.remove_prefix(std::min(at + 1, text.size()));
    return before;
}

// The text behind the last `mark`, which is cut off `text`; nothing without one.
std::optional<std::string_view> cut_behind(std::string_view& text, char mark) {
    const size_t at = text.rfind(mark);
    if (at == text.npos) return std::nullopt;
    const std::string_view behind = text.substr(at + 1);
    text = text.substr(0, at);
    return behind;
}

std::string_view stripped(std::string_view text) {
    const size_t begin = std::min(text.find_first_not_of(" \t\n"), text.size());
    const size_t end = text.find_last_not_of(" \t\n");
    return text.substr(begin, end == text.npos ? 0 : end + 1 - begin);
}

std::optional<double> seconds_in(std::string_view text) {
    constexpr std::pair<std::string_view, double> units[] = {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}};
    for (const auto& [unit, seconds] : units) {
        if (!text.ends_with(unit)) continue;
        const auto number = number_in<double>(text.substr(0, text.size() - unit.size()));
        if (!number || !(*number >= 0 && *number * seconds <= 1e6)) return std::nullopt;
        return *number * seconds;
    }
    return std::nullopt;
}

void read_when(std::string_view item, std::string_view text, Rule& rule) {
    if (text.starts_with('#')) {
        const auto key = number_in<uint64_t>(text.substr(1));
        if (!key) refuse(item, "behind @# stands a key, an integer");
        rule.when = Rule::When::key;
        rule.number = *key;
    } else if (text.find('.') != text.npos) {
        const auto share = number_in<double>(text);
        if (!share || !(*share >= 0 && *share <= 1)) refuse(item, "a share lies between 0.0 and 1.0");
        rule.when = Rule::When::share;
        rule.share = *share;
    } else {
        const auto hit = number_in<uint64_t>(text);
        if (!hit || *hit == 0) refuse(item, "behind @ stands a share such as 0.01, a hit such as 3, or #KEY");
        rule.when = Rule::When::hit;
        rule.number = *hit;
    }
}

void read_action(std::string_view item, std::string_view text, Rule& rule) {
    const std::string_view name = cut_before(text, ':');
    if (const KnownError* error = named(kErrors, name)) {
        rule.action = Action::error;
        rule.error = error->number;
        rule.name = error->name;
    } else if (const KnownAction* action = named(kActions, name)) {
        rule.action = action->action;
        rule.name = action->name;
    } else {
        refuse(item, "no action '" + std::string(name) + "'; there are " + names_of(kActions) + ", " +
                         names_of(kErrors));
    }
    if (rule.action == Action::delay) {
        const auto delay_s = seconds_in(text);
        if (!delay_s) refuse(item, "a delay has a time, as delay:5s, delay:20ms or delay:50us");
        rule.delay_s = *delay_s;
    } else if (!text.empty()) {
        refuse(item, "only delay has a time");
    }
    const KnownPoint& point = kPoints[static_cast<int>(rule.point)];
    if (!(point.takes & bit(rule.action)))
        refuse(item, "nothing at " + std::string(point.name) + " can be '" + std::string(name) + "'");
}

Rule read_rule(std::string_view item) {
    Rule rule;
    std::string_view rest = item;
    const std::string_view name = stripped(cut_before(rest, '='));
    const auto point = point_named(name);
    if (!point) refuse(item, "no point '" + std::string(name) + "'; there are " + names_of(kPoints));
    rule.point = *point;
    if (const auto text = cut_behind(rest, '*')) {
        const auto tries = number_in<int>(stripped(*text));
        if (!tries || *tries < 1) refuse(item, "behind * stands how many tries are struck, from 1");
        rule.tries = *tries;
    }
    if (const auto text = cut_behind(rest, '@')) read_when(item, stripped(*text), rule);
    read_action(item, stripped(rest), rule);
    return rule;
}

Faults read_faults(std::string_view text) {
    Faults faults;
    while (!text.empty()) {
        const std::string_view item = stripped(cut_before(text, ';'));
        if (item.empty()) continue;
        if (item.starts_with("log=")) {
            faults.log = item.substr(4);
        } else if (item.starts_with("seed=")) {
            const auto seed = number_in<uint64_t>(item.substr(5));
            if (!seed) refuse(item, "a seed is an integer");
            faults.seed = *seed;
        } else {
            faults.rules.push_back(read_rule(item));
            // Of its own for each rule, whatever else the text holds before it.
            faults.rules.back().salt = mix(fault_key(item), faults.rules.size());
        }
    }
    return faults;
}

bool strikes(const Rule& rule, uint64_t hit, uint64_t key, int attempt) {
    if (attempt >= rule.tries) return false;
    switch (rule.when) {
        case Rule::When::always: return true;
        case Rule::When::hit: return hit == rule.number;
        case Rule::When::key: return key == rule.number;
        case Rule::When::share: break;
    }
    return Draws(mix(mix(installed.seed, rule.salt), key)).uniform() < rule.share;
}

void note(const Rule& rule, uint64_t key) {
    if (installed.log.empty()) return;
    std::string line(kPoints[static_cast<int>(rule.point)].name);
    line.append(" ").append(rule.name).append(" ").append(std::to_string(getpid()));
    line.append(" ").append(std::to_string(key)).append("\n");
    const int file = open(installed.log.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0644);
    if (file < 0) return;
    [[maybe_unused]] const ssize_t written = write(file, line.data(), line.size());
    close(file);
}

void pause(double seconds) {
    timespec left{static_cast<time_t>(seconds), static_cast<long>(std::fmod(seconds, 1) * 1e9)};
    while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

void apply(const Rule& rule, Fault& fault) {
    switch (rule.action) {
        case Action::delay: return pause(rule.delay_s);
        case Action::kill: ::kill(getpid(), SIGKILL); return;
        case Action::stop: ::raise(SIGSTOP); return;  // before this thread does anything else
        case Action::exit: _exit(0);
        case Action::error: fault.error = rule.error; return;
        case Action::cut: fault.cut = true; return;
        case Action::damage: fault.damage = true; return;
        case Action::raise: fault.raises = true; return;
    }
}

}  // namespace

std::atomic<bool> detail::faults_installed{false};

void install_faults(std::string_view text) {
    installed = read_faults(text);
    // A forked process counts its own hits.
    if (!detail::faults_installed.exchange(true))
        pthread_atfork(nullptr, nullptr, [] {
            for (auto& count : hits) count = 0;
        });
}

std::vector<std::pair<std::string_view, uint64_t>> fault_hits() {
    std::vector<std::pair<std::string_view, uint64_t>> counts;
    for (size_t i = 0; i < kNumPoints; ++i) counts.emplace_back(kPoints[i].name, hits[i].load());
    return counts;
}

std::optional<Point> point_named(std::string_view name) {
    const KnownPoint* found = named(kPoints, name);
    if (!found) return std::nullopt;
    return static_cast<Point>(found - kPoints);
}

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
    for (const Rule& rule : installed.rules) {
        if (rule.point != point || !strikes(rule, hit, key, attempt)) continue;
        note(rule, key);
        apply(rule, fault);
    }
    return fault;
}

}  // namespace standpipe
