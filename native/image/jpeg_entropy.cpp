#include "image/jpeg_entropy.h"

#include <algorithm>
#include <iterator>

#ifdef STANDPIPE_LIBJPEG_INTERNALS
extern "C" {
#include <jconfigint.h>
#include <jpegint.h>
}
#endif

namespace standpipe {

#ifdef STANDPIPE_LIBJPEG_INTERNALS

bool JpegEntropy::available() noexcept { return true; }

void JpegEntropy::attach(jpeg_decompress_struct& jpeg) {
    static_assert(ScanLayout::kMostBlocks == D_MAX_BLOCKS_IN_MCU);
    if (jpeg.progressive_mode || jpeg.arith_code || jpeg.master->lossless) return;
    scan_ = 0;
    scanned_ = 0;
    if (!jpeg_has_multiple_scans(&jpeg) && !begin_scan(jpeg)) return;
    jpeg.client_data = this;
    jpeg.entropy->decode_mcu = [](j_decompress_ptr decompress, JBLOCKROW* blocks) -> boolean {
        if (!static_cast<JpegEntropy*>(decompress->client_data)->next_mcu(*decompress, blocks))
            JpegErrors::exceed(reinterpret_cast<j_common_ptr>(decompress), Excess::doubt);
        return TRUE;
    };
}

// libjpeg has read the scan's header, and built and checked its own tables.
bool JpegEntropy::begin_scan(jpeg_decompress_struct& jpeg) {
    const auto adopt = [](const JHUFF_TBL* from, HuffmanCode& to) {
        if (!from) return static_cast<const HuffmanCode*>(nullptr);
        std::copy(std::begin(from->bits), std::end(from->bits), to.counts.begin());
        std::copy(std::begin(from->huffval), std::end(from->huffval), to.symbols.begin());
        return static_cast<const HuffmanCode*>(&to);
    };
    // A second scan of a component adds to the coefficients of the first, which the decoder takes for zeros.
    for (int c = 0; c < jpeg.comps_in_scan; ++c) {
        const uint32_t bit = 1u << jpeg.cur_comp_info[c]->component_index;
        if (scanned_ & bit) return false;
        scanned_ |= bit;
    }
    ScanLayout layout;
    layout.blocks = jpeg.blocks_in_MCU;
    layout.restart_interval = jpeg.restart_interval;
    for (int b = 0; b < layout.blocks; ++b) {
        const auto i = static_cast<size_t>(b);
        const int place = jpeg.MCU_membership[b];
        const jpeg_component_info& component = *jpeg.cur_comp_info[place];
        const auto dc = static_cast<size_t>(component.dc_tbl_no),
                   ac = static_cast<size_t>(component.ac_tbl_no);
        layout.component[i] = static_cast<uint8_t>(place);
        layout.dc_table[i] = static_cast<uint8_t>(dc);
        layout.ac_table[i] = static_cast<uint8_t>(ac);
        layout.only_dc[i] = component.DCT_scaled_size == 1 || !component.component_needed;
        if (!layout.dc[dc]) layout.dc[dc] = adopt(jpeg.dc_huff_tbl_ptrs[dc], dc_codes_[dc]);
        if (!layout.ac[ac]) layout.ac[ac] = adopt(jpeg.ac_huff_tbl_ptrs[ac], ac_codes_[ac]);
        if (!layout.dc[dc] || !layout.ac[ac]) return false;
    }
    scan_ = jpeg.input_scan_number;
    column_ = 0;
    left_ = uint64_t{jpeg.MCUs_per_row} * jpeg.MCU_rows_in_scan;
    return decoder_.begin({jpeg.src->next_input_byte, jpeg.src->bytes_in_buffer}, layout);
}

// `blocks`: null where the MCU is only passed over.
bool JpegEntropy::next_mcu(jpeg_decompress_struct& jpeg, JBLOCKROW* blocks) noexcept {
    const bool keeps_all = jpeg_has_multiple_scans(&jpeg);
    if (keeps_all && jpeg.input_scan_number != scan_ && !begin_scan(jpeg)) return false;
    if (left_ == 0) return false;
    --left_;
    const JDIMENSION column = column_;
    if (++column_ == jpeg.MCUs_per_row) column_ = 0;
    const bool is_wanted =
        blocks &&
        (keeps_all || (column >= jpeg.master->first_iMCU_col && column <= jpeg.master->last_iMCU_col));
    if (!(is_wanted ? decoder_.decode(blocks) : decoder_.skip())) return false;
    return !keeps_all || left_ > 0 || end_scan(jpeg);
}

// libjpeg reads on behind the scan.
bool JpegEntropy::end_scan(jpeg_decompress_struct& jpeg) noexcept {
    const uint8_t* const marker = decoder_.marker();
    if (!marker || marker[1] == 0xff) return false;
    jpeg.src->bytes_in_buffer -= static_cast<size_t>(marker - jpeg.src->next_input_byte);
    jpeg.src->next_input_byte = marker;
    return true;
}

#else

bool JpegEntropy::available() noexcept { return false; }

void JpegEntropy::attach(jpeg_decompress_struct&) {}

#endif

}  // namespace standpipe
