// Rotations: reads angles in degrees as doubles from stdin. For each it writes the sine and the cosine of
// minus the angle, and the six numbers of the matrix about (12, 16.5).
#include <cstdio>

#include "pixels/operations.h"
#include "system/portable_math.h"

int main() {
    double degrees;
    while (std::fread(&degrees, sizeof degrees, 1, stdin) == 1) {
        const auto turn = standpipe::portable_sine_cosine(degrees * (-3.14159265358979323846 / 180.0));
        const auto matrix = standpipe::rotation(degrees, 12, 16.5);
        std::fwrite(&turn, sizeof turn, 1, stdout);
        std::fwrite(&matrix, sizeof matrix, 1, stdout);
    }
}
