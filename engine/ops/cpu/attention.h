// Causal attention over the paged cache: one kernel for prefill and decode, by tiles where the CPU has them.
//
// A query's products are the same instructions whatever the other queries: 64 tokens at a time from position 0, joined
// by an online softmax (Milakov and Gimelshein, 2018). What comes after a row weighs 0.
#pragma once

#include "attention_tiles.h"
#include "attention_vectors.h"
#include "threads.h"

// All rows. Key-value heads are outermost, so that a prefix that sequences share stays in the cache.
template <typename T>
void paged_attention(const Paged<T>& paged) {
  const auto each = [&](const auto& some) {
    const int64_t count = some.size();
    shared_out(count * paged.kv_heads, [&](int64_t item) { attend(paged, some[item % count], item / count); });
  };
#ifdef __AMX_BF16__
  if constexpr (std::is_same_v<T, BFloat16>) {
    const int64_t rows = TILE_ROWS * paged.kv_heads / paged.heads;
    if (paged.dim % 32 == 0 && paged.dim <= MOST_DIM && rows > 0) return each(bundles_of(spans_of(paged, rows), rows));
  }
#endif
  each(spans_of(paged, VECTOR_ROWS));
}
