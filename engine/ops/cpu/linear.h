// x times the transpose of a weight in float32, bfloat16, or int8 with one scale for each output; sums are float32.
//
// A row's products are added in an order that the output alone decides, whatever the other rows, so its bits do not
// depend on them.
#pragma once

#include <algorithm>

#include "vectors.h"

constexpr int64_t OUTPUTS = 32;  // computed together, and lying together
constexpr int VECTORS = OUTPUTS / LANES;
constexpr int TOGETHER = REGISTERS == 16 ? 3 : 10;  // rows whose sums fit in the registers

// Rows of x times 32 outputs' weights. A word holds one input or, of bfloat16, two: a row is `words` long and weights
// are [words, 32], a word or an int8 each. Rows of `out` are `width` apart.
template <typename X, typename W, typename Out>
struct Product {
  const X* x;
  const W* weight;
  const float* scales;
  int64_t rows, words, width;
  bool gated;  // a panel's first outputs are gates of the others: silu(gate) * other is what comes out
  Out* out;

  static constexpr int64_t IN_A_WORD = sizeof(W) == 2 ? 2 : 1;
  static constexpr bool HAS_SCALES = std::is_same_v<W, int8_t>;

  // The first `count` rows at most.
  Product first(int64_t count) const {
    Product some = *this;
    some.rows = std::min(rows, count);
    return some;
  }

  // The same rows for a later panel of 32 outputs.
  Product at(int64_t panel) const {
    Product next = *this;
    next.weight += panel * words * OUTPUTS * IN_A_WORD, next.out += panel * (gated ? OUTPUTS / 2 : OUTPUTS);
    if (HAS_SCALES) next.scales += panel * OUTPUTS;
    return next;
  }

  // The rows from `row` on.
  Product from(int64_t row) const {
    Product rest = *this;
    rest.rows -= row, rest.x += row * words * IN_A_WORD, rest.out += row * width;
    return rest;
  }

  void store_row(const Vec (&sums)[VECTORS], int64_t row) const {
    const auto scaled = [&](int v) { return HAS_SCALES ? sums[v] * load_floats(scales + v * LANES) : sums[v]; };
    Out* to = out + row * width;
    for (int v = 0; v < (gated ? VECTORS / 2 : VECTORS); v++, to += LANES)
      store_floats(gated ? silu<Out>(scaled(v)) * scaled(v + VECTORS / 2) : scaled(v), to);
  }
};

// The first R rows.
template <int R, typename X, typename W, typename Out>
void multiply(const Product<X, W, Out>& product) {
  const int32_t* x = reinterpret_cast<const int32_t*>(product.x);
  const W* weight = product.weight;
  Vec sums[R][VECTORS] = {};
  for (int64_t n = 0; n < product.words; n++)
    for (int v = 0; v < VECTORS; v++, weight += LANES * product.IN_A_WORD) {
      const Words wide = load_words(weight);
      for (int row = 0; row < R; row++) sums[row][v] = add_product<X>(sums[row][v], Words{} + x[row * product.words + n], wide);
    }
  for (int row = 0; row < R; row++) product.store_row(sums[row], row);
}

// All rows: R together as long as there are so many, then fewer.
template <int R = TOGETHER, typename X, typename W, typename Out>
void multiply_rows(Product<X, W, Out> product) {
  for (; product.rows >= R; product = product.from(R)) multiply<R>(product);
  if constexpr (R > 1) multiply_rows<(R > 2 ? (R + 1) / 2 : 1)>(product);
}

// All rows times so many panels of 32 outputs. The CPU foresees itself which weights are `next`.
template <typename X, typename W, typename Out>
void multiply_all(const Product<X, W, Out>& product, int64_t panels, const W* /*next*/) {
  for (int64_t panel = 0; panel < panels; panel++) multiply_rows(product.at(panel));
}
