// For threads that must not do others' work.
#pragma once

namespace posenc {

enum class Help { kNone, kIdleThreads };

// While one lives on a thread, WorkPool::ParallelFor() there runs no task between slabs, and is helped by none of the
// pool's threads, or by idle ones. Of two, the later one counts.
class Alone {
 public:
  explicit Alone(Help help = Help::kNone);
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  const bool before_, helped_before_;
};

}  // namespace posenc
