// x times the transpose of a weight in float32 or int8, one scale for each output; sums are float32.
//
// A row's products are added from the first input to the last, whatever the other rows, so its bits do not depend on
// them.
#pragma once

#include "vectors.h"

constexpr int64_t OUTPUTS = 32;  // computed together, and lying together: weights are [outputs / 32, inputs, 32]
constexpr int VECTORS = OUTPUTS / LANES;
constexpr int TOGETHER = REGISTERS == 16 ? 3 : 10;  // rows whose sums fit in the registers

// out[row] = x[row] times 32 outputs' weights, for R rows.
template <int R, typename W>
void multiply(const float* x, const W* weight, const float* scales, int64_t inputs, int64_t outputs, float* out) {
  Vec sums[R][VECTORS] = {};
  for (int64_t n = 0; n < inputs; n++)
    for (int v = 0; v < VECTORS; v++) {
      const Vec wide = load_floats(weight + n * OUTPUTS + v * LANES);
      for (int row = 0; row < R; row++) sums[row][v] += x[row * inputs + n] * wide;
    }
  for (int row = 0; row < R; row++)
    for (int v = 0; v < VECTORS; v++)
      store_floats(sums[row][v] * load_floats(scales + v * LANES), out + row * outputs + v * LANES);
}

// All rows, for 32 outputs: R rows together as long as there are so many, then fewer.
template <int R = TOGETHER, typename W>
void linear(const float* x, const W* weight, const float* scales, int64_t rows, int64_t inputs, int64_t outputs,
            float* out) {
  for (; rows >= R; rows -= R, x += R * inputs, out += R * outputs)
    multiply<R>(x, weight, scales, inputs, outputs, out);
  if constexpr (R > 1) linear<(R > 2 ? (R + 1) / 2 : 1)>(x, weight, scales, rows, inputs, outputs, out);
}
