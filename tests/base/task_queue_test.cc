#include "posenc/base/task_queue.h"

#include <gtest/gtest.h>

#include <optional>
#include <string>

namespace posenc::task_queue_test {
namespace {

// Pushes tasks that note their names: a caller's letter and the number of its connection, as in "a1".
class Tasks {
 public:
  void Push(const std::string& name, Lane lane = Lane::kBulk) {
    queue.Push({[this, name] { ran_ += name + " "; }, lane, {name.substr(0, 1), uint64_t(name[1] - '0')}});
  }
  // Runs a task, and returns whether there was one.
  bool Run(std::optional<Task> task) {
    if (task) task->run();
    return task.has_value();
  }
  // Runs all tasks. Returns the names of those that ran since the last call.
  std::string RunAll() {
    while (queue.size() > 0) EXPECT_TRUE(Run(queue.Take()));
    return Ran();
  }
  std::string Ran() { return std::exchange(ran_, ""); }

  TaskQueue queue;

 private:
  std::string ran_;
};

TEST(TaskQueue, ConnectionsKeepTheirOrder) {
  TaskQueue queue;
  std::string ran;
  for (const char name : std::string("abc")) queue.Push({[&ran, name] { ran += name; }, Lane::kBulk, {}});
  EXPECT_EQ(queue.size(), 3U);
  EXPECT_EQ(queue.small(), 0U);
  while (std::optional<Task> task = queue.Take()) task->run();
  EXPECT_EQ(ran, "abc");
  EXPECT_EQ(queue.size(), 0U);
}

TEST(TaskQueue, CallersTakeTurnsAndTheirConnectionsDo) {
  for (const Lane lane : {Lane::kSmall, Lane::kBulk, Lane::kBlocking}) {
    Tasks tasks;
    for (const char* name : {"a1", "a1", "a1", "a1", "a2", "a3", "b1", "b1", "c1"}) tasks.Push(name, lane);
    EXPECT_EQ(tasks.RunAll(), "a1 b1 c1 a2 b1 a3 a1 a1 a1 ");
  }
}

TEST(TaskQueue, WhoComesOrComesAgainIsLast) {
  Tasks tasks;
  for (const char* name : {"a1", "b1", "b1", "b2", "c1", "c1"}) tasks.Push(name);
  EXPECT_TRUE(tasks.Run(tasks.queue.Take()));
  EXPECT_EQ(tasks.Ran(), "a1 ");
  tasks.Push("a1");
  tasks.Push("d1");
  EXPECT_EQ(tasks.RunAll(), "b1 c1 a1 d1 b2 c1 b1 ");
}

TEST(TaskQueue, LanesTakeTurns) {
  Tasks tasks;
  for (const char* name : {"s1", "s1", "s1"}) tasks.Push(name, Lane::kSmall);
  for (const char* name : {"b1", "b1"}) tasks.Push(name, Lane::kBulk);
  tasks.Push("b1", Lane::kBlocking);
  EXPECT_EQ(tasks.queue.size(), 6U);
  EXPECT_EQ(tasks.queue.small(), 3U);
  EXPECT_EQ(tasks.RunAll(), "s1 b1 s1 b1 s1 b1 ");
  for (const char* name : {"s1", "s2"}) tasks.Push(name, Lane::kSmall);
  EXPECT_EQ(tasks.RunAll(), "s1 s2 ");
  tasks.Push("s1", Lane::kSmall);
  for (const char* name : {"b1", "b2"}) tasks.Push(name);
  EXPECT_EQ(tasks.RunAll(), "b1 s1 b2 ") << "the last one was small";
}

TEST(TaskQueue, TakeSmall) {
  Tasks tasks;
  tasks.Push("b1");
  EXPECT_FALSE(tasks.queue.TakeSmall());
  for (const char* name : {"a1", "a1", "b1"}) tasks.Push(name, Lane::kSmall);
  while (tasks.Run(tasks.queue.TakeSmall())) continue;
  EXPECT_EQ(tasks.Ran(), "a1 b1 a1 ");
  EXPECT_EQ(tasks.RunAll(), "b1 ");
}

TEST(TaskQueue, TakeBulkOfOthers) {
  Tasks tasks;
  tasks.Push("a1");
  tasks.Push("a2");
  tasks.Push("b1", Lane::kSmall);
  EXPECT_FALSE(tasks.queue.TakeBulkOfOthers("a")) << "its own, and a small one";
  tasks.Push("b1", Lane::kBlocking);
  tasks.Push("b1", Lane::kBulk);
  EXPECT_FALSE(tasks.queue.TakeBulkOfOthers("a")) << "a blocking task, and one behind it";
  tasks.Push("b2", Lane::kBulk);
  tasks.Push("c1", Lane::kBulk);
  EXPECT_EQ(tasks.queue.size(), 7U);
  while (tasks.Run(tasks.queue.TakeBulkOfOthers("a"))) continue;
  EXPECT_EQ(tasks.Ran(), "b2 c1 ");
  EXPECT_EQ(tasks.queue.size(), 5U);
  EXPECT_EQ(tasks.queue.small(), 1U);
  EXPECT_EQ(tasks.RunAll(), "b1 a1 b1 a2 b1 ");
}

TEST(TaskQueue, HasOthers) {
  Tasks tasks;
  EXPECT_FALSE(tasks.queue.HasOthers("a"));
  for (const char* name : {"a1", "a2"}) tasks.Push(name);
  EXPECT_FALSE(tasks.queue.HasOthers("a"));
  EXPECT_TRUE(tasks.queue.HasOthers("b"));
  tasks.Push("b1", Lane::kBlocking);
  EXPECT_TRUE(tasks.queue.HasOthers("a"));
  tasks.RunAll();
  tasks.Push("a1", Lane::kSmall);
  EXPECT_TRUE(tasks.queue.HasOthers("a")) << "small tasks let each other run";
}

TEST(TaskQueue, CountBulk) {
  Tasks tasks;
  for (const char* name : {"a1", "a1", "a2", "b1"}) tasks.Push(name);
  tasks.Push("a1", Lane::kBlocking);
  tasks.Push("a1", Lane::kSmall);
  EXPECT_EQ(tasks.queue.CountBulk({"a", 1}), 3U);
  EXPECT_EQ(tasks.queue.CountBulk({"a", 3}), 0U);
  EXPECT_EQ(tasks.queue.CountBulk({"c", 1}), 0U);
}

struct CountedQueue : ConnectionQueue {
  CountedQueue() { ++made, ++alive; }
  ~CountedQueue() { --alive; }
  static int made, alive;
};
int CountedQueue::made = 0, CountedQueue::alive = 0;

TEST(RoundRobin, KeepsOneSpareQueue) {
  CountedQueue::made = 0;
  RoundRobin<&TaskOwner::caller, CountedQueue> queue;
  const auto push = [&](const std::string& caller) { queue.Push({nullptr, Lane::kBulk, {caller, 0}}); };
  for (int n = 0; n < 1000; ++n) {
    push("a");
    push("a");
    while (queue.Take()) continue;
    EXPECT_TRUE(queue.empty());
  }
  EXPECT_EQ(CountedQueue::made, 1) << "a lone caller allocates none";
  for (int n = 0; n < 1000; ++n) push(std::to_string(n));
  EXPECT_EQ(queue.size(), 1000U);
  while (queue.Take()) continue;
  EXPECT_EQ(queue.size(), 0U);
  EXPECT_EQ(CountedQueue::alive, 1) << "callers without tasks are forgotten";
  push("b");
  EXPECT_FALSE(queue.Has("a"));
  EXPECT_TRUE(queue.Has("b"));
  EXPECT_EQ(queue.Take()->owner.caller, "b") << "the spare queue is nobody's";
}

}  // namespace
}  // namespace posenc::task_queue_test
