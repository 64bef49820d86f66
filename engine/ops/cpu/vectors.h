// Vectors of floats as wide as the CPU's registers, by the vector extension of GCC and Clang: one source for AVX2 and
// AVX512. A 32-bit word is one float or two bfloat16, the lower half first.
#pragma once

#include <c10/util/BFloat16.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <type_traits>

#include <immintrin.h>

#ifdef __AVX512F__
constexpr int LANES = 16, REGISTERS = 32;
#else
constexpr int LANES = 8, REGISTERS = 16;
#endif

using c10::BFloat16;
typedef float Vec __attribute__((vector_size(4 * LANES)));
typedef int32_t Words __attribute__((vector_size(4 * LANES)));
typedef uint16_t Halves __attribute__((vector_size(2 * LANES)));

// 0, 1, 2 and so on.
inline Words lane_numbers() {
#ifdef __AVX512F__
  return Words{0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
#else
  return Words{0, 1, 2, 3, 4, 5, 6, 7};
#endif
}

template <typename V, typename From>
inline V load(const From* from) {
  V loaded;
  std::memcpy(&loaded, from, sizeof loaded);
  return loaded;
}

template <typename V, typename To>
inline void store(V value, To* to) {
  std::memcpy(to, &value, sizeof value);
}

inline Vec load_floats(const float* from) { return load<Vec>(from); }

inline Vec load_floats(const BFloat16* from) {
  return reinterpret_cast<Vec>(__builtin_convertvector(load<Halves>(from), Words) << 16);
}

inline Vec load_floats(const int8_t* from) {
#ifdef __AVX512F__
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(from))));
#else
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from))));
#endif
}

// What is multiplied with a word of x: a word, or an int8 as a float.
template <typename W>
inline Words load_words(const W* from) {
  return load<Words>(from);
}

inline Words load_words(const int8_t* from) { return reinterpret_cast<Words>(load_floats(from)); }

inline void store_floats(Vec value, float* to) { store(value, to); }

// Rounded to the nearest, of two to the even one; what is no number stays none.
inline void store_floats(Vec value, BFloat16* to) {
#ifdef __AVX512BF16__
  store(reinterpret_cast<Halves>(_mm512_cvtneps_pbh(value)), to);
#else
  const Words bits = reinterpret_cast<Words>(value);
  const Words rounded = (bits + 0x7fff + (bits >> 16 & 1)) >> 16;
  store(__builtin_convertvector(value == value ? rounded : Words{} + 0x7fc0, Halves), to);
#endif
}

// The larger, and the smaller, in each lane: the right one where one is no number.
#ifdef __AVX512F__
inline Vec larger(Vec left, Vec right) { return _mm512_max_ps(left, right); }
inline Vec smaller(Vec left, Vec right) { return _mm512_min_ps(left, right); }
#else
inline Vec larger(Vec left, Vec right) { return _mm256_max_ps(left, right); }
inline Vec smaller(Vec left, Vec right) { return _mm256_min_ps(left, right); }
#endif

// sum + left * right in each lane; of bfloat16, the products of both halves.
template <typename T>
inline Vec add_product(Vec sum, Words left, Words right) {
  if constexpr (std::is_same_v<T, float>) {
    return sum + reinterpret_cast<Vec>(left) * reinterpret_cast<Vec>(right);
  } else {
#ifdef __AVX512BF16__
    return reinterpret_cast<Vec>(_mm512_dpbf16_ps(
        reinterpret_cast<__m512>(sum), reinterpret_cast<__m512bh>(left), reinterpret_cast<__m512bh>(right)));
#else
    constexpr int32_t HIGH = -65536;
    sum = sum + reinterpret_cast<Vec>(left << 16) * reinterpret_cast<Vec>(right << 16);
    return sum + reinterpret_cast<Vec>(left & HIGH) * reinterpret_cast<Vec>(right & HIGH);
#endif
  }
}

constexpr float TO_INTEGER = 12582912.0f;  // 1.5 * 2^23: what is added to it is rounded to an integer

// 2 to the power + rest, where power is what TO_INTEGER was added to and rest is between -1/2 and 1/2; 0 below 2^-126.
// Source: Cephes' exp2f.
inline Vec power_of_two(Vec power, Vec rest) {
  Vec series = Vec{} + 1.535336188319500e-4f;
  for (float coefficient : {1.339887440266574e-3f, 9.618437357674640e-3f, 5.550332471162809e-2f, 2.402264791363012e-1f,
                            6.931472028550421e-1f, 1.0f})
    series = series * rest + coefficient;
  const Words bits = reinterpret_cast<Words>(series) + (reinterpret_cast<Words>(power) << 23);
  return power < TO_INTEGER - 126 ? Vec{} : reinterpret_cast<Vec>(bits);
}

// 2 to the x, as exact as T is, or more so; x is 127 at most.
template <typename T>
inline Vec exp2(Vec x) {
#ifdef __AVX512F__
  if constexpr (std::is_same_v<T, BFloat16>) {
    const Vec rest = _mm512_reduce_ps(x, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC);  // x less the integer below it
    Vec series = Vec{} + 1.34266860e-2f;  // minimax, within 2^-18
    for (float coefficient : {5.22424715e-2f, 2.41280206e-1f, 6.93044845e-1f, 1.0f}) series = series * rest + coefficient;
    return _mm512_scalef_ps(series, x);
  }
#endif
  const Vec power = x + TO_INTEGER;
  return power_of_two(power, x - (power - TO_INTEGER));
}

// e to the x within two units in the last place; no more than e to the 88.
inline Vec exp(Vec x) {
  const Vec bounded = larger(smaller(x, Vec{} + 88.0f), Vec{} - 88.0f);
  const Vec power = bounded * 1.44269504f + TO_INTEGER;
  return power_of_two(power, bounded * 1.44269504f - (power - TO_INTEGER) + bounded * 1.92596300e-8f);
}

// As exact as T is, or more so. From -88 on it is nothing, and no number stays none.
template <typename T>
inline Vec silu(Vec x) {
  const Vec bounded = larger(Vec{} - 88.0f, x);
  if constexpr (std::is_same_v<T, BFloat16>) return bounded / (1.0f + exp2<T>(bounded * -1.44269504f));
  return bounded / (1.0f + exp(-bounded));
}

// The lanes' sum and the largest lane: one half joined with the other, until one lane is left.
#ifdef __AVX512F__
inline float sum_of(Vec value) { return _mm512_reduce_add_ps(value); }
inline float largest_of(Vec value) { return _mm512_reduce_max_ps(value); }
#else
template <typename Join>
inline float joined(Vec value, Join&& join) {
  for (int half = LANES / 2; half > 0; half /= 2)
    for (int lane = 0; lane < half; lane++) value[lane] = join(value[lane], value[lane + half]);
  return value[0];
}

inline float sum_of(Vec value) {
  return joined(value, [](float a, float b) { return a + b; });
}

inline float largest_of(Vec value) {
  return joined(value, [](float a, float b) { return a > b ? a : b; });
}
#endif
