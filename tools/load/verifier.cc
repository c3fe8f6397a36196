#include "tools/load/verifier.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "posenc/base/status.h"
#include "tools/load/mismatch.h"

namespace posenc::load {

using google::protobuf::Message;

Verifier::~Verifier() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

bool Verifier::Offer(Job job) {
  {
    const std::lock_guard lock(mutex_);
    if (!jobs_.empty() && bytes_ + job.work->answer_bytes() > kMostBytes) return false;
    bytes_ += job.work->answer_bytes();
    jobs_.push_back(std::move(job));
  }
  changed_.notify_one();
  return true;
}

void Verifier::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return ending_ || !jobs_.empty(); });
    if (jobs_.empty()) return;
    const Job job = std::move(jobs_.front());
    jobs_.pop_front();
    lock.unlock();
    const absl::StatusOr<const Message*> expected = Expected(job.work, job.offset);
    if (expected.ok()) {
      job.done(FindMismatch(*job.work, **expected, job.pieces, job.shared));
    } else {
      job.done(Mismatch{job.work->entry().name, "", 0, absl::StrCat("client error: ", expected.status().message()),
                        "an answer"});
    }
    lock.lock();
    bytes_ -= job.work->answer_bytes();
  }
}

absl::StatusOr<const Message*> Verifier::Expected(const std::shared_ptr<const Work>& work, size_t offset) {
  std::unique_ptr<Message>& expected = expected_[{work.get(), offset}];
  if (expected != nullptr) return expected.get();
  POSENC_ASSIGN_OR_RETURN(std::unique_ptr<Message> computed, work->Compute(here_, offset));
  expected_bytes_ += work->answer_bytes();
  if (expected_bytes_ > kMostBytes) {  // cache full: computed again on demand
    expected_.clear();
    expected_bytes_ = work->answer_bytes();
  }
  return (expected_[{work.get(), offset}] = std::move(computed)).get();
}

}  // namespace posenc::load
