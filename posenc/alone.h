// For threads that must not do others' work.
#pragma once

namespace posenc {

// While one lives on a thread, WorkPool::ParallelFor() there computes on that thread alone and runs no task between
// slabs.
class Alone {
 public:
  Alone();
  ~Alone();
  Alone(const Alone&) = delete;
  Alone& operator=(const Alone&) = delete;

 private:
  const bool before_;
};

}  // namespace posenc
