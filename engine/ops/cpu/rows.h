// What is done to each row by itself: norm, rotation and the write to the cache. Every row goes through the same
// instructions, so its bits depend neither on its place nor on the number of rows.
#pragma once

#include <algorithm>

#include "attention.h"

// sum = x + added; out = (sum / its root mean square) * weight. Source: Zhang and Sennrich, 2019.
template <typename T>
void add_rms_norm(const T* x, const T* added, const T* weight, float epsilon, int64_t width, T* sum, T* out) {
  Vec squares = {};
  for (int64_t n = 0; n < width; n += LANES) {
    store_floats(load_floats(x + n) + load_floats(added + n), sum + n);
    const Vec value = load_floats(sum + n);
    squares += value * value;
  }
  const float scale = 1 / std::sqrt(sum_of(squares) / width + epsilon);
  for (int64_t n = 0; n < width; n += LANES)
    store_floats(load_floats(sum + n) * scale * load_floats(weight + n), out + n);
}

// One head turned by the row's angles; its two halves are the pairs. Source: Su et al., 2021.
template <typename T>
void rotate(const T* x, const float* cosine, const float* sine, int64_t dim, T* out) {
  const int64_t half = dim / 2;
  int64_t d = 0;
  for (; d + LANES <= half; d += LANES) {
    const Vec first = load_floats(x + d), second = load_floats(x + half + d);
    const Vec by = load_floats(cosine + d), across = load_floats(sine + d);
    store_floats(first * by - second * across, out + d);
    store_floats(second * by + first * across, out + half + d);
  }
  for (; d < half; d++) {
    const float first = x[d], second = x[half + d];
    out[d] = first * cosine[d] - second * sine[d];
    out[half + d] = second * cosine[d] + first * sine[d];
  }
}

// A row's key and value to their place in a block of one head, laid out as paged.h says.
template <typename T>
void write_key(const T* key, int64_t place, int64_t dim, T* keys) {
  constexpr int64_t P = 4 / sizeof(T);
  for (int64_t word = 0; word < dim / P; word++) std::copy_n(key + word * P, P, keys + (word * BLOCK + place) * P);
}

// What is no finite number becomes 0: a value that is masked is multiplied by 0, also by whoever has the block next.
template <typename T>
void write_value(const T* value, int64_t place, int64_t dim, T* values) {
  constexpr int64_t P = 4 / sizeof(T);
  for (int64_t d = 0; d < dim; d++)
    values[(place / P * dim + d) * P + place % P] = std::isfinite(float(value[d])) ? value[d] : T(0);
}

// A row [queries, then keys, then values; all of `dim`] to its queries, turned, and to its slot, the key turned too.
template <typename T>
void rope_and_cache(const T* row, const float* cosine, const float* sine, int64_t slot, const Paged<T>& paged,
                    T* queries, T* keys, T* values) {
  const int64_t dim = paged.dim, place = slot % BLOCK;
  for (int64_t head = 0; head < paged.heads; head++)
    rotate(row + head * dim, cosine, sine, dim, queries + head * dim);
  std::vector<T> turned(dim);
  for (int64_t head = 0; head < paged.kv_heads; head++) {
    const T* key = row + (paged.heads + head) * dim;
    const int64_t at = paged.at(head, slot / BLOCK);
    rotate(key, cosine, sine, dim, turned.data());
    write_key(turned.data(), place, dim, keys + at);
    write_value(key + paged.kv_heads * dim, place, dim, values + at);
  }
}
