// A token id from a row of logits: the likeliest, or a draw by counter-based noise (engine/sampler.py says which).
#pragma once

#include <bit>
#include <functional>

#include "vectors.h"

struct Sampling {
  double temperature, top_p;
  int64_t top_k;
  uint64_t seed;
  int64_t position;
};

inline uint32_t mix(uint32_t state, uint32_t word) {
  state ^= std::rotl(word * 0xCC9E2D51u, 15) * 0x1B873593u;
  return std::rotl(state, 13) * 5 + 0xE6546B64u;
}

// MurmurHash3 (x86, 32 bits, seed 0) of the words seed low, seed high, position, token id.
struct Noise {
  uint32_t state;

  explicit Noise(const Sampling& by) : state(mix(mix(mix(0, by.seed), by.seed >> 32), by.position)) {}

  uint32_t hash(uint32_t token_id) const {
    uint32_t hashed = mix(state, token_id) ^ 16;
    hashed = (hashed ^ hashed >> 16) * 0x85EBCA6Bu;
    hashed = (hashed ^ hashed >> 13) * 0xC2B2AE35u;
    return hashed ^ hashed >> 16;
  }

  static double gumbel(uint32_t hash) { return -std::log(-std::log((hash + 0.5) / 4294967296.0)); }

  // No less than gumbel(hash), and cheap: -log(-log(1 - e)) <= -log(e).
  static double at_most(uint32_t hash) { return 0.69315 * (std::countl_zero(~hash) + 1); }
};

inline int64_t likeliest(const float* logits, int64_t vocabulary) {
  Vec most = Vec{} + logits[0];
  int64_t n = 0;
  for (; n + LANES <= vocabulary; n += LANES) {
    const Vec other = load_floats(logits + n);
    most = most > other ? most : other;
  }
  float highest = largest_of(most);
  for (; n < vocabulary; n++) highest = std::max(highest, logits[n]);
  return std::min(std::find(logits, logits + vocabulary, highest) - logits, vocabulary - 1);  // none is found if one is NaN
}

// The lowest logit that top_k, and then top_p among what top_k keeps, let through; ties at it are all kept. Few draws
// need more than the logits near the highest, so these are sorted first.
inline float threshold(const std::vector<float>& logits, float highest, const Sampling& by) {
  const size_t vocabulary = logits.size();
  const size_t kept = by.top_k > 0 ? std::min<size_t>(by.top_k, vocabulary) : vocabulary;
  const float infinity = std::numeric_limits<float>::infinity();
  if (kept == vocabulary && by.top_p >= 1) return -infinity;
  double total = 0;
  if (kept == vocabulary)
    for (float logit : logits) total += std::exp(logit - highest);
  std::vector<float> top;
  for (float reach : {5.0f, 10.0f, 20.0f, infinity}) {
    top.clear();
    for (float logit : logits)
      if (logit >= highest - reach) top.push_back(logit);
    if (kept < vocabulary && top.size() < kept) continue;
    std::sort(top.begin(), top.end(), std::greater<>());
    top.resize(std::min(top.size(), kept));
    if (by.top_p >= 1) return top.back();
    if (kept < vocabulary) {
      total = 0;
      for (float logit : top) total += std::exp(logit - highest);
    }
    double before = 0;
    for (size_t n = 0; n < top.size(); n++) {
      if (n > 0 && before >= by.top_p * total) return top[n - 1];
      before += std::exp(top[n] - highest);
    }
    if (top.size() == kept) return top.back();
  }
  return top.back();
}

// The Gumbel-max trick: argmax of logit / temperature + noise is a draw from the softmax of the kept tokens.
inline int64_t draw(const float* logits, int64_t vocabulary, const Sampling& by) {
  const int64_t first = likeliest(logits, vocabulary);
  std::vector<float> scaled(vocabulary);
  const float temperature = by.temperature;
  for (int64_t id = 0; id < vocabulary; id++) scaled[id] = logits[id] / temperature;
  if (!std::isfinite(scaled[first])) return first;
  const float lowest = threshold(scaled, scaled[first], by);
  const Noise noise(by);
  int64_t best = first;
  double highest = scaled[first] + Noise::gumbel(noise.hash(first));
  for (int64_t id = 0; id < vocabulary; id++) {
    const uint32_t hash = noise.hash(id);
    if (scaled[id] < lowest || scaled[id] + Noise::at_most(hash) < highest) continue;
    const double noisy = scaled[id] + Noise::gumbel(hash);
    if (noisy > highest || (noisy == highest && id < best)) best = id, highest = noisy;
  }
  return best;
}
