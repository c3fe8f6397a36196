#include "posenc/base/task_queue.h"

#include <algorithm>
#include <iterator>
#include <limits>
#include <utility>

namespace posenc {
namespace {

constexpr double kSmallInARow = 8;
constexpr double kSmallSeconds = 0.02;  // a small task that takes longer counts as several
constexpr double kNotYet = std::numeric_limits<double>::lowest();

// False for tasks whose time says nothing of the next ones'.
bool IsWork(Lane lane) { return lane != Lane::kHelp && lane != Lane::kTurn; }

}  // namespace

struct TaskQueue::Account {
  const std::string* name = nullptr;  // the key of accounts_
  TaskOwner owner;
  double used = kNotYet;  // seconds for a weight of 1
  double average = 0;     // seconds of a task
  double small_average = 0;
  struct Waiting {
    std::function<void()> task;
    Lane lane;
  };
  std::deque<Waiting> small, bulk;
  double small_in_a_row = 0;
  size_t help = 0;  // tasks of kHelp that wait
  size_t running = 0;

  bool is_idle() const { return small.empty() && bulk.empty() && running == 0; }
  Lane next() const {
    return !small.empty() && (bulk.empty() || small_in_a_row < kSmallInARow) ? Lane::kSmall : Lane::kBulk;
  }
};

TaskQueue::TaskQueue() = default;
TaskQueue::~TaskQueue() = default;

void TaskQueue::Push(std::function<void()> task, Lane lane, const TaskOwner& owner) {
  const auto at = accounts_.try_emplace(owner.name).first;
  Account& account = at->second;
  account.name = &at->first;
  if (account.is_idle() && !owner.name.empty()) account.used = std::max(account.used, now_ - kSavedSeconds);
  account.owner = owner;
  auto& tasks = lane == Lane::kSmall ? account.small : account.bulk;
  const auto is_no_turn = [](const Account::Waiting& waiting) { return waiting.lane != Lane::kTurn; };
  const auto place = lane == Lane::kTurn ? std::find_if(tasks.begin(), tasks.end(), is_no_turn) : tasks.end();
  tasks.insert(place, {std::move(task), lane});
  ++size_;
  if (lane == Lane::kSmall) ++small_;
  if (lane == Lane::kHelp) ++account.help;
}

size_t TaskQueue::CountHelp(const TaskOwner& owner) const {
  const auto found = accounts_.find(owner.name);
  return found == accounts_.end() ? 0 : found->second.help;
}

template <typename Fits>
TaskQueue::Account* TaskQueue::LeastUsed(const Fits& fits) {
  Account* least = nullptr;
  for (auto& [name, account] : accounts_) {
    if (fits(account) && (least == nullptr || account.used < least->used)) least = &account;
  }
  return least;
}

TaskQueue::Taken TaskQueue::Take() {
  Account* const account = LeastUsed([](const Account& a) { return !a.small.empty() || !a.bulk.empty(); });
  return TakeFrom(account, account->next());
}

TaskQueue::Taken TaskQueue::TakeSmall() {
  return TakeFrom(LeastUsed([](const Account& a) { return !a.small.empty(); }), Lane::kSmall);
}

TaskQueue::Taken TaskQueue::TakeBetween(const Taken* running, double seconds) {
  const Account* const own = running == nullptr ? nullptr : running->account;
  const bool own_too = own == nullptr || own->small_average <= seconds;
  Account* const account = LeastUsed([own, own_too](const Account& a) {
    return !a.small.empty() && (own == nullptr || (own == &a ? own_too : a.used < own->used));
  });
  if (account == nullptr) return {};
  return TakeFrom(account, Lane::kSmall);
}

bool TaskQueue::IsTurnOfOther(const Taken& running) const {
  const double used = running.account->used - running.expected / running.account->owner.weight;
  return std::any_of(accounts_.begin(), accounts_.end(), [used](const auto& named) {
    const Account& a = named.second;
    return !a.bulk.empty() && a.bulk.front().lane != Lane::kBlocking && a.used + kTurnSeconds < used;
  });
}

void TaskQueue::Pause(Taken* taken) {
  taken->account->used -= std::exchange(taken->expected, 0) / taken->account->owner.weight;
}

TaskQueue::Taken TaskQueue::TakeFrom(Account* account, Lane lane) {
  auto& tasks = lane == Lane::kSmall ? account->small : account->bulk;
  Taken taken = {std::move(tasks.front().task), tasks.front().lane, account, account->name};
  if (IsWork(taken.lane)) taken.expected = account->average;
  if (taken.lane == Lane::kHelp) --account->help;
  tasks.pop_front();
  account->small_in_a_row = lane == Lane::kSmall ? account->small_in_a_row + 1 : 0;
  ++account->running;
  ++running_;
  --size_;
  if (lane == Lane::kSmall) --small_;
  now_ = std::max(now_, account->used);
  account->used += taken.expected / account->owner.weight;
  return taken;
}

void TaskQueue::Charge(Taken* taken, double seconds) {
  taken->used += seconds;
  if (taken->owner->empty()) return;
  taken->expected -= seconds;
  if (taken->expected >= 0) return;
  taken->account->used -= taken->expected / taken->account->owner.weight;
  taken->expected = 0;
}

void TaskQueue::End(Taken* taken) {
  Account& account = *taken->account;
  Pause(taken);
  // A task that is unlike the last ones changes the expectation by a quarter.
  if (IsWork(taken->lane)) account.average += (taken->used - account.average) / 4;
  if (taken->lane == Lane::kSmall) {
    account.small_average += (taken->used - account.small_average) / 4;
    account.small_in_a_row += std::max(0.0, taken->used / kSmallSeconds - 1);
  }
  --account.running;
  taken->account = nullptr;
  if (--running_ > 0 || size_ > 0) return;
  // All begin anew. One account stays, so that a lone owner's tasks allocate none.
  accounts_.erase(std::next(accounts_.begin()), accounts_.end());
  accounts_.begin()->second.used = kNotYet;
  now_ = 0;
}

const TaskOwner& TaskQueue::OwnerOf(const Taken& taken) { return taken.account->owner; }

}  // namespace posenc
