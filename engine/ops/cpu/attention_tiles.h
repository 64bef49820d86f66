// Attention by tiles, for bfloat16: up to 16 queries of one key-value head, 64 tokens at a time. They are a row's heads
// and those of other rows, also of other sequences as long as these have the same blocks, as with a prompt in common. A
// block's keys and values lie as tiles are to be.
#pragma once

#include "paged.h"
#include "tiles.h"

#ifdef __AMX_BF16__
constexpr int64_t MOST_DIM = 256;

// Spans of as many rows each that are computed together, and how many chunks they have in common.
struct Bundle {
  std::vector<Span> spans;
  int64_t rows, common;
};

inline int64_t chunks_in_common(const Span& left, const Span& right) {
  const int64_t blocks = (std::min(left.end(), right.end()) + BLOCK - 1) / BLOCK;
  if (left.table == right.table) return blocks * BLOCK / CHUNK;
  return (std::mismatch(left.table, left.table + blocks, right.table).first - left.table) * BLOCK / CHUNK;
}

// A span joins those before it if it costs them less than it gains: each reads alone what is not common to all.
inline std::vector<Bundle> bundles_of(std::vector<Span> spans, int64_t most_rows) {
  std::stable_sort(spans.begin(), spans.end(), [](const Span& left, const Span& right) {
    if (left.rows != right.rows || left.table == right.table) return left.rows < right.rows;
    return std::lexicographical_compare(left.table, left.table_end, right.table, right.table_end);
  });
  std::vector<Bundle> bundles;
  for (const Span& span : spans) {
    if (!bundles.empty() && bundles.back().rows + span.rows <= most_rows) {
      Bundle& last = bundles.back();
      const int64_t common = std::min(last.common, chunks_in_common(last.spans[0], span)), count = last.spans.size();
      if (common > 0 && span.rows == last.spans[0].rows && count * common >= (count - 1) * last.common) {
        last.spans.push_back(span), last.rows += span.rows, last.common = common;
        continue;
      }
    }
    bundles.push_back({{span}, span.rows, span.end() / CHUNK});
  }
  return bundles;
}

// 64 tokens for some rows of a bundle, from its row `begin` on.
struct Piece {
  int64_t begin;
  Chunk<BFloat16> chunk;
};

// The queries of some rows for one key-value head, and what they have seen so far. A row is named by its number here.
struct Queries {
  // The scores of four blocks, or the sums of 64 dims of a head, are in tiles 0 to 3.
  static constexpr int QUERIES = 4, KEYS = 5, WEIGHTS = 6, VALUES = 7;
  static constexpr int64_t TILE_DIMS = 64, AHEAD = 3;

  const Paged<BFloat16>& paged;
  const int64_t kv_head, group = paged.heads / paged.kv_heads, dim = paged.dim;
  const bool from_memory;  // as a sequence's own blocks are for its one next token, seldom being in the cache
  int64_t rows = 0, row[TILE_ROWS], position[TILE_ROWS];  // of the batch, and how many tokens are before each
  std::vector<Piece> pieces;

  // By lines, which are a row's heads and then the next row's: [lines, dim].
  alignas(64) BFloat16 queries[TILE_ROWS * MOST_DIM];
  alignas(64) float sums[TILE_ROWS * MOST_DIM];
  alignas(64) float scores[2][TILE_ROWS][CHUNK];
  alignas(64) BFloat16 weights[TILE_ROWS][CHUNK];
  Softmax softmax[TILE_ROWS];

  Queries(const Paged<BFloat16>& paged, int64_t kv_head, bool from_memory)
      : paged(paged), kv_head(kv_head), from_memory(from_memory) {}

  int64_t place(int64_t of_row) const { return (of_row * paged.heads + kv_head * group) * dim; }

  void add(const Span& span) {
    for (int64_t n = 0; n < span.rows; n++, rows++) {
      row[rows] = span.row + n, position[rows] = span.position + n;
      std::copy_n(paged.queries + place(row[rows]), group * dim, queries + rows * group * dim);
      std::fill_n(sums + rows * group * dim, group * dim, 0.0f);
    }
  }

  // The rows from `begin` on are to see a sequence's tokens `first` to `last`.
  void show(int64_t begin, const int64_t* table, int64_t first, int64_t last) {
    for (; first < last; first += CHUNK) pieces.push_back({begin, {paged, kv_head, table, first, last}});
  }

  // Has them see the pieces `first` to `last`, `count` rows at a time. A piece's scores are computed before the weights of
  // the one before, so that the CPU has something to do meanwhile.
  void see(int64_t first, int64_t last, int64_t count) {
    if (first == last) return;
    TileShapes shapes;
    for (int tile : {0, 1, 2, 3, QUERIES}) shapes.set(tile, count * group);
    shapes.set(KEYS, TILE_ROWS).set(WEIGHTS, count * group, BLOCK * 2).set(VALUES, BLOCK / 2);
    const Tiles tiles(shapes);
    score(first);
    for (int64_t n = first; n < last; n++) {
      if (n + 1 < last) score(n + 1);
      weigh(n, count);
      add_values(n);
    }
  }

  // What is to be asked for while a piece is read, if anything.
  const Chunk<BFloat16>* ahead(int64_t piece) const {
    return from_memory && piece + AHEAD < int64_t(pieces.size()) ? &pieces[piece + AHEAD].chunk : nullptr;
  }

  void score(int64_t of_piece) {
    const Piece& piece = pieces[of_piece];
    const Chunk<BFloat16>& chunk = piece.chunk;
    const Chunk<BFloat16>* later = ahead(of_piece);
    up_to_four(chunk.blocks, [](auto block) { zero_tile<block>(); });
    for (int64_t first = 0; first < dim; first += 32) {
      load_tile<QUERIES>(queries + piece.begin * group * dim + first, dim * 2);
      up_to_four(chunk.blocks, [&](auto block) {
        if (later) prefetch_tile(later->keys[block] + first / 2 * BLOCK, TILE_ROWS, TILE_BYTES);
        load_tile<KEYS>(chunk.keys[block] + first / 2 * BLOCK, TILE_BYTES);
        add_tiles<block, QUERIES, KEYS>();
      });
    }
    float* to = scores[of_piece % 2][piece.begin * group];
    up_to_four(chunk.blocks, [&](auto block) { store_tile<block>(to + block * BLOCK, CHUNK * 4); });
  }

  void weigh(int64_t of_piece, int64_t count) {
    const Piece& piece = pieces[of_piece];
    const float unit = unit_of(dim);
    for (int64_t n = piece.begin; n < piece.begin + count; n++)
      for (int64_t line = n * group; line < (n + 1) * group; line++) {
        const int64_t tokens = std::min(CHUNK, position[n] + 1 - piece.chunk.first);
        const float scale = softmax[line].weigh(scores[of_piece % 2][line], tokens, unit, weights[line]);
        if (scale == 1) continue;
        for (float *sum = sums + line * dim, *last = sum + dim; sum < last; sum += LANES) store(load_floats(sum) * scale, sum);
      }
  }

  void add_values(int64_t of_piece) {
    const Piece& piece = pieces[of_piece];
    const Chunk<BFloat16>* later = ahead(of_piece);
    for (int64_t first = 0; first < dim; first += TILE_DIMS) {
      const int64_t columns = (dim - first) / 16;
      float* of = sums + piece.begin * group * dim + first;
      up_to_four(columns, [&](auto column) { load_tile<column>(of + column * 16, dim * 4); });
      for (int64_t block = 0; block < piece.chunk.blocks; block++) {
        load_tile<WEIGHTS>(weights[piece.begin * group] + block * BLOCK, CHUNK * 2);
        up_to_four(columns, [&](auto column) {
          if (later) prefetch_tile(later->values[block] + first + column * 16, BLOCK / 2, dim * 4);
          load_tile<VALUES>(piece.chunk.values[block] + first + column * 16, dim * 4);
          add_tiles<column, WEIGHTS, VALUES>();
        });
      }
      up_to_four(columns, [&](auto column) { store_tile<column>(of + column * 16, dim * 4); });
    }
  }

  void write() const {
    for (int64_t line = 0; line < rows * group; line++)
      divide(sums + line * dim, softmax[line], dim, paged.out + place(row[line / group]) + line % group * dim);
  }
};

inline void attend(const Paged<BFloat16>& paged, const Bundle& bundle, int64_t kv_head) {
  const int64_t common = bundle.spans.size() > 1 ? bundle.common : 0, each = bundle.spans[0].rows;
  Queries queries(paged, kv_head, each == 1);
  for (const Span& span : bundle.spans) queries.add(span);
  queries.show(0, bundle.spans[0].table, 0, common * CHUNK);
  for (int64_t begin = 0; const Span& span : bundle.spans) {
    queries.show(begin, span.table, common * CHUNK, span.end());
    begin += each;
  }
  queries.see(0, common, queries.rows);
  queries.see(common, queries.pieces.size(), each);
  queries.write();
}
#endif
