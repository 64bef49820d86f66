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
  static constexpr int64_t TILE_DIMS = 64;

  const Paged<BFloat16>& paged;
  const int64_t kv_head, group = paged.heads / paged.kv_heads, dim = paged.dim;
  int64_t rows = 0, row[TILE_ROWS], position[TILE_ROWS];  // of the batch, and how many tokens are before each
  std::vector<Piece> pieces;

  // By lines, which are a row's heads and then the next row's: [lines, dim].
  alignas(64) BFloat16 queries[TILE_ROWS * MOST_DIM];
  alignas(64) float sums[TILE_ROWS * MOST_DIM];
  alignas(64) float scores[2][TILE_ROWS][CHUNK];
  alignas(64) BFloat16 weights[TILE_ROWS][CHUNK];
  Softmax softmax[TILE_ROWS];

  Queries(const Paged<BFloat16>& paged, int64_t kv_head) : paged(paged), kv_head(kv_head) {}

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

  // Has them see what was shown, `count` rows at a time. A piece's scores are computed before the weights of the one
  // before, so that the CPU has something to do meanwhile.
  void see(int64_t count) {
    if (pieces.empty()) return;
    TileShapes shapes;
    for (int tile : {0, 1, 2, 3, QUERIES}) shapes.set(tile, count * group);
    shapes.set(KEYS, TILE_ROWS).set(WEIGHTS, count * group, BLOCK * 2).set(VALUES, BLOCK / 2);
    const Tiles tiles(shapes);
    const int64_t size = pieces.size();
    score(pieces[0], 0);
    for (int64_t n = 0; n < size; n++) {
      if (n + 1 < size) score(pieces[n + 1], (n + 1) % 2);
      weigh(pieces[n], count, n % 2);
      add_values(pieces[n]);
    }
    pieces.clear();
  }

  void score(const Piece& piece, int buffer) {
    const Chunk<BFloat16>& chunk = piece.chunk;
    up_to_four(chunk.blocks, [](auto block) { zero_tile<block>(); });
    for (int64_t first = 0; first < dim; first += 32) {
      load_tile<QUERIES>(queries + piece.begin * group * dim + first, dim * 2);
      up_to_four(chunk.blocks, [&](auto block) {
        load_tile<KEYS>(chunk.keys[block] + first / 2 * BLOCK, TILE_BYTES);
        add_tiles<block, QUERIES, KEYS>();
      });
    }
    float* to = scores[buffer][piece.begin * group];
    up_to_four(chunk.blocks, [&](auto block) { store_tile<block>(to + block * BLOCK, CHUNK * 4); });
  }

  void weigh(const Piece& piece, int64_t count, int buffer) {
    const float unit = unit_of(dim);
    for (int64_t n = piece.begin; n < piece.begin + count; n++)
      for (int64_t line = n * group; line < (n + 1) * group; line++) {
        const int64_t tokens = std::min(CHUNK, position[n] + 1 - piece.chunk.first);
        const float scale = softmax[line].weigh(scores[buffer][line], tokens, unit, weights[line]);
        if (scale == 1) continue;
        for (float *sum = sums + line * dim, *last = sum + dim; sum < last; sum += LANES) store(load_floats(sum) * scale, sum);
      }
  }

  void add_values(const Piece& piece) {
    for (int64_t first = 0; first < dim; first += TILE_DIMS) {
      const int64_t columns = (dim - first) / 16;
      float* of = sums + piece.begin * group * dim + first;
      up_to_four(columns, [&](auto column) { load_tile<column>(of + column * 16, dim * 4); });
      for (int64_t block = 0; block < piece.chunk.blocks; block++) {
        load_tile<WEIGHTS>(weights[piece.begin * group] + block * BLOCK, CHUNK * 2);
        up_to_four(columns, [&](auto column) {
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
  Queries queries(paged, kv_head);
  for (const Span& span : bundle.spans) queries.add(span);
  const int64_t common = bundle.spans.size() > 1 ? bundle.common * CHUNK : 0, each = bundle.spans[0].rows;
  queries.show(0, bundle.spans[0].table, 0, common);
  queries.see(queries.rows);
  for (int64_t begin = 0; const Span& span : bundle.spans) {
    queries.show(begin, span.table, common, span.end());
    begin += each;
  }
  queries.see(each);
  queries.write();
}
#endif
