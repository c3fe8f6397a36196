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

// Returns the account or connection for which `used` is least among those that fit, or null.
template <typename Map, typename Used, typename Fits>
typename Map::mapped_type* Least(Map* all, const Used& used, const Fits& fits) {
  typename Map::mapped_type* least = nullptr;
  for (auto& [key, one] : *all) {
    if (fits(one) && (least == nullptr || used(one) < used(*least))) least = &one;
  }
  return least;
}

// Raises `value` to `least`.
void Raise(double* value, double least) { *value = std::max(*value, least); }

// Something of each lane: of small tasks, and of all others.
template <typename Value>
struct OfLanes {
  Value small, bulk;
  Value& operator[](Lane lane) { return lane == Lane::kSmall ? small : bulk; }
  const Value& operator[](Lane lane) const { return lane == Lane::kSmall ? small : bulk; }
};

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

  struct Tasks {
    std::deque<Waiting> waiting;
    size_t running = 0;
    double used = kNotYet;  // seconds
    bool is_idle() const { return waiting.empty() && running == 0; }
  };

  TaskOwner owner;
  OfLanes<Tasks> in;
  bool is_idle() const { return in.small.is_idle() && in.bulk.is_idle(); }
};

struct TaskQueue::Account {
  const std::string* name = nullptr;  // the key of accounts_
  double weight = 1;
  bool takes_places = true;
  // Seconds for a weight of 1, of all tasks and of the small ones alone.
  double used = kNotYet, small_used = kNotYet;
  double in_advance = 0;             // seconds that its running tasks were charged and have not used yet
  OfLanes<double> average = {0, 0};  // seconds of a task
  std::map<uint64_t, Connection> connections;
  OfLanes<double> now = {0, 0};  // the most that a connection had used in a lane
  size_t small = 0, bulk = 0;    // tasks that wait
  double small_in_a_row = 0;
  size_t help = 0;  // tasks of kHelp that wait
  size_t running = 0;

  bool is_idle() const { return small == 0 && bulk == 0 && running == 0; }
  Lane next() const { return small > 0 && (bulk == 0 || small_in_a_row < kSmallInARow) ? Lane::kSmall : Lane::kBulk; }
  // The connection whose turn it is in a lane, or null. A task that has let others run goes on before another begins.
  Connection* Next(Lane lane) {
    const auto has_turn = [](const Connection& one) {
      const auto& waiting = one.in.bulk.waiting;
      return !waiting.empty() && waiting.front().lane == Lane::kTurn;
    };
    Connection* const next = lane == Lane::kSmall ? nullptr : LeastUsed(lane, has_turn);
    if (next != nullptr) return next;
    return LeastUsed(lane, [lane](const Connection& one) { return !one.in[lane].waiting.empty(); });
  }
  // The connection to which a task is added.
  Connection* Find(const TaskOwner& owner, Lane lane) {
    ForgetIdle(&connections);
    Connection& connection = connections[owner.connection];
    if (auto& tasks = connection.in[lane]; tasks.is_idle()) {
      const double start = StartOfNew(lane);
      if (tasks.used == kNotYet) {
        // Not behind the new one, nor the next ones: they would keep who has used much from its turn for good.
        for (auto& [number, other] : connections) other.in[lane].used = std::min(other.in[lane].used, start);
        tasks.used = start;
      }
      Raise(&tasks.used, start - kSavedSeconds);
    }
    connection.owner = owner;
    return &connection;
  }
  // Returns the time that a new connection is taken to have used: that of the connection that has used least, and one
  // task. It must not be the time of the one that has used most: that one may have computed for long while nobody else
  // was there, and the new one would wait until all that waited meanwhile have used as much.
  double StartOfNew(Lane lane) {
    const auto is_busy = [lane](const Connection& one) { return !one.in[lane].is_idle(); };
    const Connection* const least = LeastUsed(lane, is_busy);
    if (least == nullptr) return now[lane];
    const double most = lane == Lane::kSmall ? kSmallSeconds : kSavedSeconds;
    return std::min(now[lane], least->in[lane].used + std::min(average[lane], most));
  }
  template <typename Fits>
  Connection* LeastUsed(Lane lane, const Fits& fits) {
    return Least(
        &connections, [lane](const Connection& one) { return one.in[lane].used; }, fits);
  }
  // Forgets what its connections have used. One stays, so that a lone one's tasks allocate none.
  void BeginAnew() {
    connections.erase(std::next(connections.begin()), connections.end());
    OfLanes<Connection::Tasks>& in = connections.begin()->second.in;
    in.small.used = in.bulk.used = kNotYet;
    now = {0, 0};
  }
};

namespace {

double Used(const TaskQueue::Account& account) { return account.used; }
double SmallUsed(const TaskQueue::Account& account) { return account.small_used; }
bool HasSmall(const TaskQueue::Account& account) { return account.small > 0; }

}  // namespace

TaskQueue::TaskQueue() = default;
TaskQueue::~TaskQueue() = default;

void TaskQueue::Push(std::function<void()> task, Lane lane, const TaskOwner& owner) {
  Advance();
  ForgetIdle(&accounts_);
  const auto at = accounts_.try_emplace(owner.name).first;
  Account& account = at->second;
  account.name = &at->first;
  const bool is_first_small = lane == Lane::kSmall && !HasSmall(account);
  if (!owner.name.empty() && (account.is_idle() || is_first_small)) {
    const double least = Begin(owner.weight);
    if (account.is_idle()) Raise(&account.used, least);
    if (is_first_small) Raise(&account.small_used, least);
  }
  account.weight = owner.weight;
  account.takes_places = owner.takes_places;
  auto& tasks = account.Find(owner, lane)->in[lane].waiting;
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
  Account* const account = Least(&accounts_, Used, [](const Account& a) { return a.small + a.bulk > 0; });
  return TakeTurnOf(account, account->next());
}

TaskQueue::Taken TaskQueue::TakeSmall() { return TakeTurnOf(Least(&accounts_, Used, HasSmall), Lane::kSmall); }

TaskQueue::Taken TaskQueue::TakeBetween(const Taken* running, double seconds) {
  const Account* const own = running == nullptr ? nullptr : running->account;
  const bool own_too = own == nullptr || own->average.small <= seconds;
  Account* const account = Least(&accounts_, Used, [own, own_too](const Account& a) {
    return HasSmall(a) && (own == nullptr || (own == &a ? own_too : a.used < own->used));
  });
  return TakeTurnOf(account, Lane::kSmall, own, own_too);
}

TaskQueue::Taken TaskQueue::TakeTurnOf(Account* in_turn, Lane lane, const Account* own, bool own_too) {
  if (out_of_turn_ > 0) {
    Account* const other =
        Least(&accounts_, SmallUsed, [=](const Account& a) { return HasSmall(a) && (own_too || &a != own); });
    const bool is_behind = other != nullptr && other != in_turn && other->small_used < now_ &&
                           (in_turn == nullptr || lane != Lane::kSmall || other->small_used < in_turn->small_used);
    if (is_behind) {
      Taken taken = TakeFrom(other, Lane::kSmall, other == own);
      taken.out_of_turn = true;
      return taken;
    }
  }
  if (in_turn == nullptr) return {};
  return TakeFrom(in_turn, lane, in_turn == own);
}

bool TaskQueue::IsTurnOfOther(const Taken& running) {
  const double weight = running.account->weight, used = running.account->used - running.expected / weight;
  return std::any_of(accounts_.begin(), accounts_.end(), [weight, used](auto& named) {
    Account& a = named.second;
    return a.takes_places && a.bulk > 0 && a.used + kTurnSeconds / std::max(weight, a.weight) < used &&
           a.Next(Lane::kBulk)->in.bulk.waiting.front().lane != Lane::kBlocking;
  });
}

void TaskQueue::Pause(Taken* taken) {
  taken->account->in_advance -= std::max(0.0, taken->expected);
  Add(taken, -std::exchange(taken->expected, 0));
}

void TaskQueue::Add(Taken* taken, double seconds) {
  Account& account = *taken->account;
  account.used += seconds / account.weight;
  if (taken->lane == Lane::kSmall && !taken->between_own) account.small_used += seconds / account.weight;
  taken->connection->in[taken->lane].used += seconds;
}

TaskQueue::Taken TaskQueue::TakeFrom(Account* account, Lane lane, bool between_own) {
  Connection* const connection = account->Next(lane);
  auto& [tasks, running, used] = connection->in[lane];
  Taken taken = {std::move(tasks.front().task), tasks.front().lane, account, connection, account->name};
  taken.between_own = between_own;
  if (IsWork(taken.lane)) taken.expected = account->average[lane];
  if (taken.lane == Lane::kHelp) --account->help;
  tasks.pop_front();
  account->small_in_a_row = lane == Lane::kSmall ? account->small_in_a_row + 1 : 0;
  --(lane == Lane::kSmall ? account->small : account->bulk);
  ++account->running;
  ++running;
  ++running_;
  --size_;
  if (lane == Lane::kSmall) --small_;
  Advance();
  Raise(&account->now[lane], used);
  Add(&taken, taken.expected);
  account->in_advance += taken.expected;
  return taken;
}

// Not what the owner of the task that was taken has used: small tasks between others' slabs, or out of turn, are not of
// those that have used least.
void TaskQueue::Advance() {
  constexpr double kNever = std::numeric_limits<double>::infinity();
  double used = kNever;
  for (const auto& [name, account] : accounts_) {
    if (account.used == kNotYet || account.is_idle()) continue;
    used = std::min(used, account.used - account.in_advance / account.weight);
  }
  if (used != kNever) Raise(&now_, used);
}

double TaskQueue::Begin(double weight) {
  const auto is_there = [](const Account& account) { return account.used != kNotYet && !account.is_idle(); };
  double heaviest = weight;
  for (const auto& [name, account] : accounts_) {
    if (is_there(account)) heaviest = std::max(heaviest, account.weight);
  }
  const double least = now_ - kSavedSeconds / heaviest;
  for (auto& [name, account] : accounts_) {
    if (is_there(account)) Raise(&account.used, least + account.in_advance / account.weight);
  }
  return least;
}

void TaskQueue::Charge(Taken* taken, double seconds) {
  taken->used += seconds;
  if (taken->owner->empty()) return;
  out_of_turn_ = std::min(kSmallSeconds, out_of_turn_ + (taken->out_of_turn ? -seconds : seconds * kOutOfTurn));
  taken->account->in_advance -= std::min(seconds, taken->expected);
  taken->expected -= seconds;
  if (taken->expected < 0) Pause(taken);
  Raise(&taken->account->now[taken->lane], taken->connection->in[taken->lane].used - taken->expected);
}

void TaskQueue::End(Taken* taken) {
  Account& account = *taken->account;
  Pause(taken);
  // A task that is unlike the last ones changes the expectation by a quarter.
  if (IsWork(taken->lane)) account.average[taken->lane] += (taken->used - account.average[taken->lane]) / 4;
  if (taken->lane == Lane::kSmall) account.small_in_a_row += std::max(0.0, taken->used / kSmallSeconds - 1);
  --account.running;
  --taken->connection->in[taken->lane].running;
  taken->account = nullptr;
  taken->connection = nullptr;
  if (account.is_idle()) account.BeginAnew();
  if (--running_ > 0 || size_ > 0) return;
  // All begin anew. One account stays, so that a lone owner's tasks allocate none.
  accounts_.erase(std::next(accounts_.begin()), accounts_.end());
  accounts_.begin()->second.used = accounts_.begin()->second.small_used = kNotYet;
  now_ = out_of_turn_ = 0;
}

const TaskOwner& TaskQueue::OwnerOf(const Taken& taken) { return taken.connection->owner; }

}  // namespace posenc
