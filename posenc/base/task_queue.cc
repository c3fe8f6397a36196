#include "posenc/base/task_queue.h"

#include <algorithm>
#include <deque>
#include <iterator>
#include <limits>
#include <utility>

namespace posenc {
namespace {

constexpr double kSmallInARow = 8;
constexpr double kSmallSeconds = 0.02;  // a small task that takes longer counts as several
constexpr double kNotYet = std::numeric_limits<double>::lowest();
// More owners, or connections of one, are kept only while they have tasks.
constexpr size_t kMostKept = 256;

// False for tasks whose time says nothing of the next ones'.
bool IsWork(Lane lane) { return lane != Lane::kHelp && lane != Lane::kTurn; }

// Returns the account or connection that has used least among those that fit, or null.
template <typename Map, typename Fits>
typename Map::mapped_type* LeastUsed(Map* all, const Fits& fits) {
  typename Map::mapped_type* least = nullptr;
  for (auto& [key, one] : *all) {
    if (fits(one) && (least == nullptr || one.used < least->used)) least = &one;
  }
  return least;
}

template <typename Map>
void ForgetIdle(Map* all) {
  if (all->size() > kMostKept) std::erase_if(*all, [](const auto& one) { return one.second.is_idle(); });
}

}  // namespace

struct TaskQueue::Connection {
  struct Waiting {
    std::function<void()> task;
    Lane lane;
  };

  TaskOwner owner;
  double used = 0;  // seconds
  std::deque<Waiting> small, bulk;
  size_t running = 0;

  std::deque<Waiting>& in(Lane lane) { return lane == Lane::kSmall ? small : bulk; }
  bool is_idle() const { return small.empty() && bulk.empty() && running == 0; }
};

struct TaskQueue::Account {
  const std::string* name = nullptr;  // the key of accounts_
  double weight = 1;
  bool takes_places = true;
  double used = kNotYet;  // seconds for a weight of 1
  double average = 0;     // seconds of a task
  double small_average = 0;
  std::map<uint64_t, Connection> connections;
  double now = 0;              // the most that a connection had used when a task of it began or ended
  size_t small = 0, bulk = 0;  // tasks that wait
  double small_in_a_row = 0;
  size_t help = 0;  // tasks of kHelp that wait
  size_t running = 0;

  bool is_idle() const { return small == 0 && bulk == 0 && running == 0; }
  Lane next() const { return small > 0 && (bulk == 0 || small_in_a_row < kSmallInARow) ? Lane::kSmall : Lane::kBulk; }
  // The connection whose turn it is in a lane, or null. A task that has let others run goes on before another begins.
  Connection* Next(Lane lane) {
    const auto has_turn = [](const Connection& one) {
      return !one.bulk.empty() && one.bulk.front().lane == Lane::kTurn;
    };
    Connection* const next = lane == Lane::kSmall ? nullptr : LeastUsed(&connections, has_turn);
    if (next != nullptr) return next;
    return LeastUsed(&connections, [lane](Connection& one) { return !one.in(lane).empty(); });
  }
  // The connection to which a task is added.
  Connection* Find(const TaskOwner& owner, Lane lane) {
    ForgetIdle(&connections);
    const auto [at, is_new] = connections.try_emplace(owner.connection);
    Connection& connection = at->second;
    if (connection.is_idle()) {
      const double start = StartOfNew(lane);
      connection.used = is_new ? start : std::max(connection.used, start - kSavedSeconds);
    }
    connection.owner = owner;
    return &connection;
  }
  // Returns the time that a new connection is taken to have used: that of the connection that has used least, and one
  // task. It must not be the time of the one that has used most: that one may have computed for long while nobody else
  // was there, and the new one would wait until all that waited meanwhile have used as much.
  double StartOfNew(Lane lane) {
    const Connection* const least = LeastUsed(&connections, [](const Connection& one) { return !one.is_idle(); });
    if (least == nullptr) return now;
    return std::min(now, least->used + std::min(average, lane == Lane::kSmall ? kSmallSeconds : kSavedSeconds));
  }
  // Forgets what its connections have used. One stays, so that a lone one's tasks allocate none.
  void BeginAnew() {
    connections.erase(std::next(connections.begin()), connections.end());
    connections.begin()->second.used = now = 0;
  }
};

TaskQueue::TaskQueue() = default;
TaskQueue::~TaskQueue() = default;

void TaskQueue::Push(std::function<void()> task, Lane lane, const TaskOwner& owner) {
  ForgetIdle(&accounts_);
  const auto at = accounts_.try_emplace(owner.name).first;
  Account& account = at->second;
  account.name = &at->first;
  if (account.is_idle() && !owner.name.empty()) account.used = std::max(account.used, now_ - kSavedSeconds);
  account.weight = owner.weight;
  account.takes_places = owner.takes_places;
  auto& tasks = account.Find(owner, lane)->in(lane);
  const auto is_no_turn = [](const Connection::Waiting& waiting) { return waiting.lane != Lane::kTurn; };
  const auto place = lane == Lane::kTurn ? std::find_if(tasks.begin(), tasks.end(), is_no_turn) : tasks.end();
  tasks.insert(place, {std::move(task), lane});
  ++size_;
  if (lane == Lane::kSmall) ++small_;
  ++(lane == Lane::kSmall ? account.small : account.bulk);
  if (lane == Lane::kHelp) ++account.help;
}

size_t TaskQueue::CountKept() const {
  size_t kept = accounts_.size();
  for (const auto& [name, account] : accounts_) kept += account.connections.size();
  return kept;
}

size_t TaskQueue::CountHelp(const TaskOwner& owner) const {
  const auto found = accounts_.find(owner.name);
  return found == accounts_.end() ? 0 : found->second.help;
}

TaskQueue::Taken TaskQueue::Take() {
  Account* const account = LeastUsed(&accounts_, [](const Account& a) { return a.small + a.bulk > 0; });
  return TakeFrom(account, account->next());
}

TaskQueue::Taken TaskQueue::TakeSmall() {
  return TakeFrom(LeastUsed(&accounts_, [](const Account& a) { return a.small > 0; }), Lane::kSmall);
}

TaskQueue::Taken TaskQueue::TakeBetween(const Taken* running, double seconds) {
  const Account* const own = running == nullptr ? nullptr : running->account;
  const bool own_too = own == nullptr || own->small_average <= seconds;
  Account* const account = LeastUsed(&accounts_, [own, own_too](const Account& a) {
    return a.small > 0 && (own == nullptr || (own == &a ? own_too : a.used < own->used));
  });
  if (account == nullptr) return {};
  return TakeFrom(account, Lane::kSmall);
}

bool TaskQueue::IsTurnOfOther(const Taken& running) {
  const double used = running.account->used - running.expected / running.account->weight;
  return std::any_of(accounts_.begin(), accounts_.end(), [used](auto& named) {
    Account& a = named.second;
    return a.takes_places && a.bulk > 0 && a.used + kTurnSeconds < used &&
           a.Next(Lane::kBulk)->bulk.front().lane != Lane::kBlocking;
  });
}

void TaskQueue::Pause(Taken* taken) { Add(taken, -std::exchange(taken->expected, 0)); }

void TaskQueue::Add(Taken* taken, double seconds) {
  taken->account->used += seconds / taken->account->weight;
  taken->connection->used += seconds;
}

TaskQueue::Taken TaskQueue::TakeFrom(Account* account, Lane lane) {
  Connection* const connection = account->Next(lane);
  auto& tasks = connection->in(lane);
  Taken taken = {std::move(tasks.front().task), tasks.front().lane, account, connection, account->name};
  if (IsWork(taken.lane)) taken.expected = account->average;
  if (taken.lane == Lane::kHelp) --account->help;
  tasks.pop_front();
  account->small_in_a_row = lane == Lane::kSmall ? account->small_in_a_row + 1 : 0;
  --(lane == Lane::kSmall ? account->small : account->bulk);
  ++account->running;
  ++connection->running;
  ++running_;
  --size_;
  if (lane == Lane::kSmall) --small_;
  // Not what the task's owner has used: small tasks between others' slabs are not of those that have used least.
  const auto is_busy = [](const Account& a) { return !a.is_idle() && a.used != kNotYet; };
  if (const Account* const least = LeastUsed(&accounts_, is_busy)) now_ = std::max(now_, least->used);
  account->now = std::max(account->now, connection->used);
  Add(&taken, taken.expected);
  return taken;
}

void TaskQueue::Charge(Taken* taken, double seconds) {
  taken->used += seconds;
  if (taken->owner->empty()) return;
  taken->expected -= seconds;
  if (taken->expected < 0) Pause(taken);
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
  account.now = std::max(account.now, taken->connection->used);
  --account.running;
  --taken->connection->running;
  taken->account = nullptr;
  taken->connection = nullptr;
  if (account.is_idle()) account.BeginAnew();
  if (--running_ > 0 || size_ > 0) return;
  // All begin anew. One account stays, so that a lone owner's tasks allocate none.
  accounts_.erase(std::next(accounts_.begin()), accounts_.end());
  accounts_.begin()->second.used = kNotYet;
  now_ = 0;
}

const TaskOwner& TaskQueue::OwnerOf(const Taken& taken) { return taken.connection->owner; }

}  // namespace posenc
