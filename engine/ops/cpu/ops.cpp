// The ops that torch sees: shapes and types are checked here, then rows are shared out among the threads. What the
// arguments are, engine/ops/contract.py says.
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <tuple>

#include "linear_tiles.h"
#include "rows.h"
#include "sample.h"

using at::Tensor;

namespace {

constexpr int64_t ROWS_A_THREAD = 8;
constexpr int64_t BAND = 256;               // rows that stay in the cache while all weights go by
constexpr int64_t GROUP_BYTES = 192 << 10;  // of weights, that stay there while the rows go by: one panel at least

void check(const Tensor& tensor, const char* name, at::ScalarType type, at::IntArrayRef shape) {
  TORCH_CHECK(tensor.is_cpu() && tensor.is_contiguous() && tensor.scalar_type() == type && tensor.sizes() == shape, name,
              " is ", tensor.scalar_type(), tensor.sizes(), tensor.is_contiguous() ? "" : " not contiguous",
              ", expected ", type, shape);
}

template <typename Do>
void each_row(int64_t rows, Do&& act) {
  at::parallel_for(0, rows, ROWS_A_THREAD, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) act(row);
  });
}

// Calls `act` with a value of the C++ type that `type` names.
template <typename Do>
void by_type(at::ScalarType type, Do&& act) {
  TORCH_CHECK(type == at::kFloat || type == at::kBFloat16, type, ": expected Float or BFloat16");
  type == at::kFloat ? act(float{}) : act(BFloat16{});
}

std::tuple<Tensor, Tensor> add_rms_norm_op(const Tensor& x, const Tensor& added, const Tensor& weight, double epsilon) {
  const int64_t rows = x.size(0), width = x.size(1);
  const auto type = x.scalar_type();
  TORCH_CHECK(width % 16 == 0, "rows of ", width, ": expected a multiple of 16");
  check(x, "x", type, {rows, width});
  check(added, "added", type, {rows, width});
  check(weight, "weight", type, {width});
  Tensor out = at::empty_like(x), sum = at::empty_like(x);
  by_type(type, [&](auto zero) {
    using T = decltype(zero);
    const T *from = x.const_data_ptr<T>(), *more = added.const_data_ptr<T>(), *scale = weight.const_data_ptr<T>();
    T *to = out.data_ptr<T>(), *both = sum.data_ptr<T>();
    each_row(rows, [&](int64_t row) {
      const int64_t at = row * width;
      add_rms_norm(from + at, more + at, scale, float(epsilon), width, both + at, to + at);
    });
  });
  return {out, sum};
}

// The sizes of one layer's cache, checked: [kv heads, blocks, dim * 16] each.
template <typename T>
Paged<T> paged_of(const Tensor& keys, const Tensor& values, int64_t heads, int64_t dim) {
  const auto type = keys.scalar_type();
  const int64_t kv_heads = keys.size(0), blocks = keys.size(1);
  TORCH_CHECK(dim > 0 && dim % 16 == 0 && kv_heads > 0 && heads > 0 && heads % kv_heads == 0, heads, " heads of ", dim,
              " over ", kv_heads, ": expected a multiple of 16, and of the key-value heads");
  check(keys, "keys", type, {kv_heads, blocks, BLOCK * dim});
  check(values, "values", type, {kv_heads, blocks, BLOCK * dim});
  Paged<T> paged{};
  paged.keys = keys.const_data_ptr<T>();
  paged.values = values.const_data_ptr<T>();
  paged.heads = heads, paged.kv_heads = kv_heads, paged.blocks = blocks, paged.dim = dim;
  return paged;
}

Tensor rope_and_cache_op(const Tensor& qkv, const Tensor& cosine, const Tensor& sine, const Tensor& positions,
                         const Tensor& slots, const Tensor& keys, const Tensor& values) {
  const int64_t rows = qkv.size(0), dim = 2 * cosine.size(1), kv_heads = keys.size(0), blocks = keys.size(1);
  TORCH_CHECK(dim > 0 && qkv.size(1) / dim > 2 * kv_heads, "rows of ", qkv.size(1), " for ", kv_heads, " key-value heads of ", dim);
  const int64_t heads = qkv.size(1) / dim - 2 * kv_heads, context = cosine.size(0);
  check(qkv, "qkv", keys.scalar_type(), {rows, (heads + 2 * kv_heads) * dim});
  check(cosine, "cosine", at::kFloat, {context, dim / 2});
  check(sine, "sine", at::kFloat, {context, dim / 2});
  check(positions, "positions", at::kLong, {rows});
  check(slots, "slots", at::kLong, {rows});
  const int64_t *position = positions.const_data_ptr<int64_t>(), *slot = slots.const_data_ptr<int64_t>();
  for (int64_t row = 0; row < rows; row++)
    TORCH_CHECK(uint64_t(position[row]) < uint64_t(context) && uint64_t(slot[row]) < uint64_t(blocks * BLOCK),
                "position ", position[row], " of ", context, ", slot ", slot[row], " of ", blocks * BLOCK);
  Tensor queries = at::empty({rows, heads, dim}, qkv.options());
  by_type(qkv.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    const Paged<T> paged = paged_of<T>(keys, values, heads, dim);
    const T* from = qkv.const_data_ptr<T>();
    T *to = queries.data_ptr<T>(), *key = keys.data_ptr<T>(), *value = values.data_ptr<T>();
    const float *cosines = cosine.const_data_ptr<float>(), *sines = sine.const_data_ptr<float>();
    each_row(rows, [&](int64_t row) {
      const int64_t angles = position[row] * dim / 2;
      rope_and_cache(from + row * qkv.size(1), cosines + angles, sines + angles, slot[row], paged,
                     to + row * heads * dim, key, value);
    });
  });
  return queries;
}

Tensor paged_attention_op(const Tensor& queries, const Tensor& keys, const Tensor& values, const Tensor& starts,
                          const Tensor& lengths, const Tensor& table) {
  const int64_t rows = queries.size(0), heads = queries.size(1), dim = queries.size(2), sequences = lengths.size(0);
  check(queries, "queries", keys.scalar_type(), {rows, heads, dim});
  check(starts, "query_start_loc", at::kLong, {sequences + 1});
  check(lengths, "seq_lens", at::kLong, {sequences});
  check(table, "block_table", at::kLong, {sequences, table.size(1)});
  const int64_t *start = starts.const_data_ptr<int64_t>(), *length = lengths.const_data_ptr<int64_t>();
  const int64_t *blocks = table.const_data_ptr<int64_t>(), width = table.size(1);
  TORCH_CHECK(start[0] == 0 && start[sequences] == rows, "sequences of ", start[sequences], " rows, where there are ", rows);
  for (int64_t n = 0; n < sequences; n++) {
    const int64_t own = start[n + 1] - start[n];
    TORCH_CHECK(own >= 0 && own <= length[n] && length[n] <= width * BLOCK, "sequence ", n, " has ", own, " rows of ",
                length[n], " tokens in ", width, " blocks");
    for (int64_t block = 0; block * BLOCK < length[n]; block++)
      TORCH_CHECK(uint64_t(blocks[n * width + block]) < uint64_t(keys.size(1)), "block ", blocks[n * width + block],
                  " of ", keys.size(1));
  }
  Tensor out = at::empty({rows, heads * dim}, queries.options());
  by_type(queries.scalar_type(), [&](auto zero) {
    using T = decltype(zero);
    Paged<T> paged = paged_of<T>(keys, values, heads, dim);
    paged.queries = queries.const_data_ptr<T>();
    paged.starts = start, paged.lengths = length, paged.table = blocks;
    paged.out = out.data_ptr<T>();
    paged.sequences = sequences, paged.table_width = width;
    paged_attention(paged);
  });
  return out;
}

// Calls `act` with pointers to the weights and to the first element of `out`.
template <typename Act>
void by_weight(const Tensor& weight, Tensor& out, Act&& act) {
  const auto type = weight.scalar_type();
  TORCH_CHECK(type == at::kFloat || type == at::kChar || type == at::kBFloat16, type, ": expected Float, Char or BFloat16");
  if (type == at::kFloat) act(weight.const_data_ptr<float>(), out.data_ptr<float>());
  if (type == at::kChar) act(weight.const_data_ptr<int8_t>(), out.data_ptr<float>());
  if (type == at::kBFloat16 && out.scalar_type() == at::kFloat)
    act(weight.const_data_ptr<BFloat16>(), out.data_ptr<float>());
  if (type == at::kBFloat16 && out.scalar_type() == at::kBFloat16)
    act(weight.const_data_ptr<BFloat16>(), out.data_ptr<BFloat16>());
}

Tensor tiled_linear_op(const Tensor& x, const Tensor& weight, const std::optional<Tensor>& scales, at::ScalarType out_type,
                       bool gated) {
  const bool has_scales = weight.scalar_type() == at::kChar;
  const auto type = has_scales ? at::kFloat : weight.scalar_type();
  const int64_t rows = x.size(0), inputs = x.size(1), panels = weight.size(0), in_a_word = type == at::kBFloat16 ? 2 : 1;
  TORCH_CHECK(inputs > 0 && inputs % OUTPUTS == 0, inputs, " inputs: expected a multiple of ", OUTPUTS);
  TORCH_CHECK(out_type == at::kFloat || out_type == type, "products of ", type, " as ", out_type, ": expected Float or ", type);
  TORCH_CHECK(scales.has_value() == has_scales, has_scales ? "Char weights without scales" : "scales for weights that are not Char");
  check(x, "x", type, {rows, inputs});
  check(weight, "weight", weight.scalar_type(), {panels, inputs / in_a_word, OUTPUTS * in_a_word});
  if (has_scales) check(*scales, "scales", at::kFloat, {panels * OUTPUTS});
  const float* scale = has_scales ? scales->const_data_ptr<float>() : nullptr;
  const int64_t panel_bytes = inputs * OUTPUTS * weight.element_size(), group = std::max<int64_t>(1, GROUP_BYTES / panel_bytes);
  const int64_t bands = (rows + BAND - 1) / BAND, groups = (panels + group - 1) / group;
  const int64_t width = panels * OUTPUTS / (gated ? 2 : 1);
  Tensor out = at::empty({rows, width}, x.options().dtype(out_type));
  by_weight(weight, out, [&](const auto* by, auto* to) {
    using X = std::conditional_t<sizeof(*by) == 2, BFloat16, float>;
    const Product all{x.const_data_ptr<X>(), by, scale, rows, inputs / in_a_word, width, gated, to};
    const int64_t items = bands * groups, threads = at::get_num_threads();
    const auto panel_of = [&](int64_t item) { return item % groups * group; };
    shared_out(items, [&](int64_t item) {
      const int64_t panel = panel_of(item), next = item + threads;  // most likely
      multiply_all(all.at(panel).from(item / groups * BAND).first(BAND), std::min(group, panels - panel),
                   next < items ? all.at(panel_of(next)).weight : nullptr);
    });
  });
  return out;
}

Tensor sample_op(const Tensor& logits, const Tensor& temperatures, const Tensor& top_ps, const Tensor& top_ks,
                 const Tensor& seeds, const Tensor& positions) {
  const int64_t rows = logits.size(0), vocabulary = logits.size(1);
  TORCH_CHECK(vocabulary > 0, "a vocabulary of 0");
  check(logits, "logits", at::kFloat, {rows, vocabulary});
  check(temperatures, "temperatures", at::kDouble, {rows});
  check(top_ps, "top_ps", at::kDouble, {rows});
  for (const Tensor* words : {&top_ks, &seeds, &positions}) check(*words, "top_ks, seeds or positions", at::kLong, {rows});
  Tensor ids = at::empty({rows}, logits.options().dtype(at::kLong));
  const float* from = logits.const_data_ptr<float>();
  int64_t* to = ids.data_ptr<int64_t>();
  at::parallel_for(0, rows, 1, [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; row++) {
      const Sampling by{temperatures.const_data_ptr<double>()[row], top_ps.const_data_ptr<double>()[row],
                        top_ks.const_data_ptr<int64_t>()[row], uint64_t(seeds.const_data_ptr<int64_t>()[row]),
                        positions.const_data_ptr<int64_t>()[row]};
      const float* own = from + row * vocabulary;
      to[row] = by.temperature > 0 ? draw(own, vocabulary, by) : likeliest(own, vocabulary);
    }
  });
  return ids;
}

}  // namespace

TORCH_LIBRARY(laneway, library) {
  library.def("add_rms_norm(Tensor x, Tensor added, Tensor weight, float epsilon) -> (Tensor, Tensor)");
  library.def(
      "rope_and_cache(Tensor qkv, Tensor cosine, Tensor sine, Tensor positions, Tensor slots, Tensor(a!) keys,"
      " Tensor(b!) values) -> Tensor");
  library.def(
      "paged_attention(Tensor queries, Tensor keys, Tensor values, Tensor query_start_loc, Tensor seq_lens,"
      " Tensor block_table) -> Tensor");
  library.def("tiled_linear(Tensor x, Tensor weight, Tensor? scales, ScalarType out_dtype, bool gated) -> Tensor");
  library.def(
      "sample(Tensor logits, Tensor temperatures, Tensor top_ps, Tensor top_ks, Tensor seeds, Tensor positions) -> Tensor");
}

TORCH_LIBRARY_IMPL(laneway, CPU, library) {
  library.impl("add_rms_norm", add_rms_norm_op);
  library.impl("rope_and_cache", rope_and_cache_op);
  library.impl("paged_attention", paged_attention_op);
  library.impl("tiled_linear", tiled_linear_op);
  library.impl("sample", sample_op);
}
