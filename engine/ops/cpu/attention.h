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
  const auto each = [&](int64_t most_rows, auto&& act) {
    const std::vector<Span> spans = spans_of(paged.starts, paged.lengths, paged.sequences, most_rows);
    shared_out(spans.size() * paged.kv_heads, [&](int64_t item) { act(spans[item % spans.size()], item / spans.size()); });
  };
#ifdef __AMX_BF16__
  if constexpr (std::is_same_v<T, BFloat16>) {
    const int64_t group = paged.heads / paged.kv_heads;
    if (paged.dim % 32 == 0 && paged.dim <= MOST_DIM && group <= TILE_ROWS)
      return each(TILE_ROWS / group, [&](const Span& span, int64_t kv_head) {
        attend_in_tiles(paged, span, kv_head, kv_head * group, group);
      });
  }
#endif
  each(VECTOR_ROWS, [&](const Span& span, int64_t kv_head) { attend(paged, span, kv_head); });
}
