// Queue of tasks whose owners share the threads by weight, and whose owners' connections share them equally. Not
// thread-safe.
//
// Next is a task of the owner that has used least time for its weight: start-time fair queuing (Goyal, Vin, Cheng:
// Start-time Fair Queuing, SIGCOMM 1996), with measured times. Of the time that an owner did not use, kSavedSeconds are
// saved for later: an owner that asks for no more than its share on average then waits for others only until the task
// that runs has ended, although its calls do not come evenly. Only the heaviest of those that are there saves as much,
// the others in proportion to their weights. When nothing waits or runs, all begin anew.
//
// Small tasks must not wait until their owner's long ones are paid for. So they may have a part of the time,
// kOutOfTurn, out of turn, if it would be their owner's turn had it used no more than for small tasks, without those
// between the slabs of its own tasks.
//
// An owner's connections take turns in the same way, each lane for itself. A new one has saved nothing and comes after
// those that wait, and none is behind it afterwards, so that many new ones in a row do not keep another waiting. Owners
// and connections without tasks are forgotten when they are many.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <string>

namespace posenc {

// Priority lanes of one owner's tasks. Small tasks run before bulk ones, and also between a bulk task's slabs, one at a
// time, so a long bulk task does not block them. After eight small tasks in a row, or some that took as long as eight
// should, a bulk task is next, so bulk does not starve. Tasks of kBlocking are bulk tasks that may wait for something
// other than a processor, such as a file: no task that runs gives up its place for them. Tasks of kHelp are bulk tasks
// that help a loop, which does not wait for them. A task of kTurn gives its thread's place to a bulk task that has let
// others run; it comes first among its owner's bulk tasks and takes no time.
enum class Lane { kSmall, kBulk, kBlocking, kHelp, kTurn };

struct TaskOwner {
  std::string name;   // empty: nobody, whose tasks are not measured and come first
  double weight = 1;  // above 0
  uint64_t connection = 0;
  bool takes_places = true;  // its bulk tasks take the places of those of owners that have used more, between slabs
};

class TaskQueue {
 public:
  // Compute time of the heaviest owner that has tasks.
  static constexpr double kSavedSeconds = 1;
  // A bulk task lets an owner's run only if that has used so much less: changes of threads take time. Compute time of
  // the heavier one.
  static constexpr double kTurnSeconds = 0.005;
  // Time of small tasks out of turn, as a part of the other tasks' time.
  static constexpr double kOutOfTurn = 0.125;

  struct Connection;
  struct Account;

  TaskQueue();
  ~TaskQueue();

  struct Taken {
    std::function<void()> task;
    Lane lane = Lane::kBulk;
    Account* account = nullptr;          // valid until End()
    Connection* connection = nullptr;    // likewise
    const std::string* owner = nullptr;  // its name; valid until End(), and does not change
    double expected = 0;                 // seconds that are charged in advance and not used yet
    double used = 0;                     // seconds
    bool out_of_turn = false;
    bool between_own = false;  // it runs between the slabs of a task of the same owner
  };

  // Time that running tasks have used should be charged before: a new owner or connection begins where others are.
  void Push(std::function<void()> task, Lane lane, const TaskOwner& owner);

  size_t size() const { return size_; }
  size_t small() const { return small_; }
  // Number of owners and connections that are not forgotten.
  size_t CountKept() const;
  // Number of an owner's tasks of kHelp.
  size_t CountHelp(const TaskOwner& owner) const;

  // Takes the next task. Requires size() > 0.
  Taken Take();
  // Takes the next small task. Requires small() > 0.
  Taken TakeSmall();
  // Takes a small task to run between the slabs of `running`: one of the same owner if such tasks take at most
  // `seconds`, or of an owner that has used less, or one out of turn. Returns one without an account if there is none.
  // `running` is null: any small task.
  Taken TakeBetween(const Taken* running, double seconds = std::numeric_limits<double>::infinity());
  // True if a bulk task waits, but no blocking one, whose owner takes places and has used less than that of `running`,
  // by kTurnSeconds.
  bool IsTurnOfOther(const Taken& running);
  // Takes back what was charged in advance for a task that lets others run.
  void Pause(Taken* taken);

  // Charges time that a task has used since the last call.
  void Charge(Taken* taken, double seconds);
  // Must be called for each task taken, after its last Charge().
  void End(Taken* taken);

  static const TaskOwner& OwnerOf(const Taken& taken);

 private:
  // Takes a small task out of turn, if there is one and time for it. Otherwise takes a task of the owner whose turn it
  // is, in the lane; if that is null, none. `own`: the owner of the task between whose slabs it runs, if any, of which
  // none is taken out of turn unless `own_too`.
  Taken TakeTurnOf(Account* in_turn, Lane lane, const Account* own = nullptr, bool own_too = true);
  Taken TakeFrom(Account* account, Lane lane, bool between_own);
  // Raises now_.
  void Advance();
  // Returns what an owner of this weight has used at least when it comes. Those that are there have saved no more from
  // then on: when a heavier one comes, they would hold it back otherwise.
  double Begin(double weight);
  // Adds to what the task's owner and its connection have used.
  void Add(Taken* taken, double seconds);

  std::map<std::string, Account> accounts_;  // by owner
  size_t size_ = 0, small_ = 0, running_ = 0;
  double now_ = 0;          // what the owners that have tasks had used at least, for their weight; does not decrease
  double out_of_turn_ = 0;  // seconds that small tasks out of turn may take
};

}  // namespace posenc
