// A Fallback that calls Python, which has Pillow decode.
#pragma once

#include <nanobind/stl/string.h>

#include <span>
#include <string>
#include <utility>

#include "bind/bind.h"
#include "image/row_maker.h"

namespace standpipe {

// Returns the pixels of an array, (height, width, channels) or (height, width).
inline RawPixels raw_pixels(const PixelArray& array) {
    if (array.ndim() != 2 && array.ndim() != 3) throw nb::value_error("pixels: (H, W, C) or (H, W)");
    return {array.data(),
            {static_cast<int>(array.shape(0)), static_cast<int>(array.shape(1))},
            array.ndim() == 2 ? 1 : static_cast<int>(array.shape(2))};
}

// Calls `decode(data, kind, reserve)` of Python, which returns (pixels, truncated). Its exceptions are the
// errors of the image; those that aren't an Exception, such as an interrupt, end the call.
class PillowCall final : public Fallback {
  public:
    explicit PillowCall(nb::callable decode) : decode_(std::move(decode)) {}

    std::string decode(std::span<const uint8_t> bytes, const Input& input, const Reserve& reserve,
                       const Use& use) override {
        Locked locked;
        try {
            const nb::object data =
                nb::cast(View<uint8_t>(bytes.data(), {bytes.size()}), nb::rv_policy::reference);
            const nb::object waits =
                nb::cpp_function([&reserve](int height, int width, uint64_t frame_bytes) {
                    Released unlocked;
                    return reserve({height, width}, frame_bytes);
                });
            const nb::tuple made = nb::cast<nb::tuple>(called(data, input.kind, waits));
            const auto array = nb::cast<PixelArray>(made[0]);
            const RawPixels pixels = raw_pixels(array);
            const bool truncated = nb::cast<bool>(made[1]);
            Released unlocked;
            use(pixels, truncated);
        } catch (nb::python_error& error) {
            if (!error.matches(PyExc_Exception)) throw;
            return nb::str(error.value()).c_str();
        }
        return {};
    }

  private:
    nb::object called(const nb::object& data, int kind, const nb::object& waits) const {
        WaitsAtEnd end;
        nb::object made = decode_(data, kind, waits);
        end.passed();
        return made;
    }

    nb::callable decode_;
};

}  // namespace standpipe
