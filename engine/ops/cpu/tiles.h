// AMX: eight registers that are tiles of up to 16 rows of 64 bytes, and sums += left * right of pairs of bfloat16.
//
// A row of the sums comes from a row of the left tile and all of the right one, so it does not depend on how many rows
// there are. Source: Intel's Architecture Instruction Set Extensions, "Advanced Matrix Extensions".
#pragma once

#include <cstdint>
#include <type_traits>

#ifdef __AMX_BF16__
constexpr int64_t TILE_ROWS = 16, TILE_BYTES = 64;

// As the CPU reads it.
struct alignas(64) TileShapes {
  uint8_t palette = 1, start_row = 0, reserved[14] = {};
  uint16_t bytes[16] = {};  // of a row
  uint8_t rows[16] = {};

  TileShapes& set(int tile, int64_t count, int64_t row_bytes = TILE_BYTES) {
    rows[tile] = uint8_t(count), bytes[tile] = uint16_t(row_bytes);
    return *this;
  }
};

// The tiles of this thread, as long as it lives. What is written here is assembly since compilers' intrinsics do not
// say that they read and write memory.
struct Tiles {
  Tiles() = default;
  explicit Tiles(const TileShapes& shapes) { shape(shapes); }
  ~Tiles() { asm volatile("tilerelease" ::: "memory"); }

  void shape(const TileShapes& shapes) const { asm volatile("ldtilecfg %0" ::"m"(shapes) : "memory"); }
};

template <int TILE>
inline void zero_tile() {
  asm volatile("tilezero %%tmm%c0" ::"i"(TILE));
}

template <int TILE>
inline void load_tile(const void* from, int64_t row_bytes) {
  asm volatile("tileloadd (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(TILE) : "memory");
}

// The same for what is not wanted again soon: it pushes less out of the nearest cache.
template <int TILE>
inline void load_tile_once(const void* from, int64_t row_bytes) {
  asm volatile("tileloaddt1 (%0,%1,1), %%tmm%c2" ::"r"(from), "r"(row_bytes), "i"(TILE) : "memory");
}

// Asks for what a tile will be loaded from, so that it is in the CPU's cache by then.
inline void prefetch_tile(const void* from, int64_t rows, int64_t row_bytes) {
  for (int64_t row = 0; row < rows; row++) __builtin_prefetch(static_cast<const char*>(from) + row * row_bytes, 0, 2);
}

template <int TILE>
inline void store_tile(void* to, int64_t row_bytes) {
  asm volatile("tilestored %%tmm%c2, (%0,%1,1)" ::"r"(to), "r"(row_bytes), "i"(TILE) : "memory");
}

// Left's rows are of pairs, right's rows are one pair of each column.
template <int SUMS, int LEFT, int RIGHT>
inline void add_tiles() {
  asm volatile("tdpbf16ps %%tmm%c2, %%tmm%c1, %%tmm%c0" ::"i"(SUMS), "i"(LEFT), "i"(RIGHT));
}

// Calls `act` with 0 to count - 1, four at most, each known when it is compiled.
template <typename Act>
inline void up_to_four(int64_t count, Act&& act) {
  if (count > 0) act(std::integral_constant<int, 0>{});
  if (count > 1) act(std::integral_constant<int, 1>{});
  if (count > 2) act(std::integral_constant<int, 2>{});
  if (count > 3) act(std::integral_constant<int, 3>{});
}
#endif
