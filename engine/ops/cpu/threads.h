// Work for the threads, which are torch's own.
#pragma once

#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>

// Calls `act` with 0 to items - 1. Threads take items as they get free: one that has to share its core does fewer, and
// the others do not wait for it.
template <typename Do>
void shared_out(int64_t items, Do&& act) {
  std::atomic<int64_t> next{0};
  at::parallel_for(0, std::min<int64_t>(items, at::get_num_threads()), 1, [&](int64_t, int64_t) {
    for (int64_t item; (item = next++) < items;) act(item);
  });
}
