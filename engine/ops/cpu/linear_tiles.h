// The products of linear.h by tiles, for bfloat16.
#pragma once

#include "linear.h"
#include "tiles.h"

#ifdef __AMX_BF16__
// Up to 32 rows, in two tiles on the left; the 32 outputs' weights are two on the right. Eight tiles are shaped so:
// sums 0 and 1 of the upper rows, 2 and 3 of the lower, 4 and 5 x, 6 and 7 the weights.
template <bool LOWER, typename Out>
void multiply_tiles(const Product<BFloat16, BFloat16, Out>& product, bool backwards) {
  const int32_t *x = reinterpret_cast<const int32_t*>(product.x), *weight = reinterpret_cast<const int32_t*>(product.weight);
  for (int64_t row = 0; row < product.rows; row++) __builtin_prefetch(product.out + row * product.width, 1);
  zero_tile<0>(), zero_tile<1>();
  if constexpr (LOWER) zero_tile<2>(), zero_tile<3>();
  for (int64_t step = 0, steps = product.words / TILE_ROWS; step < steps; step++) {
    const int64_t n = (backwards ? steps - 1 - step : step) * TILE_ROWS;
    load_tile<6>(weight + n * OUTPUTS, OUTPUTS * 4), load_tile<7>(weight + n * OUTPUTS + OUTPUTS / 2, OUTPUTS * 4);
    load_tile<4>(x + n, product.words * 4);
    add_tiles<0, 4, 6>(), add_tiles<1, 4, 7>();
    if constexpr (LOWER) {
      load_tile<5>(x + TILE_ROWS * product.words + n, product.words * 4);
      add_tiles<2, 5, 6>(), add_tiles<3, 5, 7>();
    }
  }
  alignas(64) float sums[2 * TILE_ROWS][OUTPUTS];
  store_tile<0>(sums[0], OUTPUTS * 4), store_tile<1>(sums[0] + OUTPUTS / 2, OUTPUTS * 4);
  if constexpr (LOWER)
    store_tile<2>(sums[TILE_ROWS], OUTPUTS * 4), store_tile<3>(sums[TILE_ROWS] + OUTPUTS / 2, OUTPUTS * 4);
  for (int64_t row = 0; row < product.rows; row++) product.store_row(reinterpret_cast<const Vec(&)[VECTORS]>(sums[row]), row);
}

inline TileShapes shapes_of(int64_t upper, int64_t lower) {
  TileShapes shapes;
  for (int tile : {0, 1, 4}) shapes.set(tile, upper);
  if (lower)
    for (int tile : {2, 3, 5}) shapes.set(tile, lower);
  return shapes.set(6, TILE_ROWS).set(7, TILE_ROWS);
}

template <typename Out>
void multiply_all(Product<BFloat16, BFloat16, Out> product, int64_t panels) {
  const Tiles tiles;
  for (int64_t shaped = 0; product.rows > 0; product = product.from(2 * TILE_ROWS)) {
    const Product<BFloat16, BFloat16, Out> some = product.first(2 * TILE_ROWS);
    const int64_t upper = std::min(some.rows, TILE_ROWS), lower = some.rows - upper;
    if (shaped != some.rows) tiles.shape(shapes_of(upper, lower));
    shaped = some.rows;
    for (int64_t n = 0; n < panels; n++) lower ? multiply_tiles<true>(some.at(n), n % 2) : multiply_tiles<false>(some.at(n), n % 2);
  }
}
#endif
