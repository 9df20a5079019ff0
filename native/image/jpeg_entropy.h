// Our entropy decoder in the place of libjpeg-turbo's. Its source is the only file that knows libjpeg-turbo's
// internals, and so needs the pinned static library.
#pragma once

#include "image/entropy.h"
#include "image/jpeg_library.h"

namespace standpipe {

class JpegEntropy {
  public:
    // False where libjpeg-turbo's own headers weren't there to compile with: attach() does nothing.
    static bool available() noexcept;

    // Has libjpeg-turbo's next calls take coefficients from here, if this file is of a kind that can be. For
    // a single scan: after jpeg_start_decompress. For several: when it calls its progress monitor. A doubt
    // ends libjpeg-turbo's call by JpegErrors::exceed(Excess::doubt).
    void attach(jpeg_decompress_struct& jpeg);

  private:
    bool begin_scan(jpeg_decompress_struct& jpeg);
    bool next_mcu(jpeg_decompress_struct& jpeg, JBLOCKROW* blocks) noexcept;
    bool end_scan(jpeg_decompress_struct& jpeg) noexcept;

    EntropyDecoder decoder_;
    HuffmanCode dc_codes_[NUM_HUFF_TBLS], ac_codes_[NUM_HUFF_TBLS];
    int scan_ = 0;           // the number of the one that was begun
    JDIMENSION column_ = 0;  // of the next MCU
    uint64_t left_ = 0;      // MCUs of the scan
    uint32_t scanned_ = 0;   // a bit for each component that a scan had
};

}  // namespace standpipe
