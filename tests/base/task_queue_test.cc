#include "posenc/base/task_queue.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace posenc::task_queue_test {
namespace {

const TaskOwner kNobody;

// Pushes a task of an owner that notes its name.
void Push(TaskQueue* queue, std::string* ran, char name, double weight, Lane lane = Lane::kBulk) {
  queue->Push([ran, name] { *ran += name; }, lane, {std::string(1, name), weight});
}

// Runs one task, which takes `seconds`.
void RunNext(TaskQueue* queue, double seconds) {
  TaskQueue::Taken taken = queue->Take();
  taken.task();
  queue->Charge(&taken, seconds);
  queue->End(&taken);
}

TEST(TaskQueue, OneOwnersTasksKeepTheirOrder) {
  TaskQueue queue;
  std::string ran;
  for (const char name : std::string("abc")) queue.Push([&ran, name] { ran += name; }, Lane::kBulk, kNobody);
  for (int n = 0; n < 10; ++n) queue.Push([&ran] { ran += 's'; }, Lane::kSmall, kNobody);
  EXPECT_EQ(queue.size(), 13U);
  EXPECT_EQ(queue.small(), 10U);
  while (queue.size() > 0) RunNext(&queue, 0.001);
  EXPECT_EQ(ran, "ssssssssassbc");
}

// a's tasks take ten times as long as b's. Both always have tasks that wait.
TEST(TaskQueue, TimeIsSharedByWeight) {
  for (const double weight : {1.0, 3.0}) {
    TaskQueue queue;
    std::string ran;
    for (int n = 0; n < 1000; ++n) {
      Push(&queue, &ran, 'a', weight);
      Push(&queue, &ran, 'b', 1);
    }
    std::map<char, double> time;
    for (double total = 0; total < 400;) {
      TaskQueue::Taken taken = queue.Take();
      const char name = TaskQueue::OwnerOf(taken).name[0];
      const double cost = name == 'a' ? 10 : 1;
      queue.Charge(&taken, cost);
      queue.End(&taken);
      time[name] += cost;
      total += cost;
    }
    EXPECT_NEAR(time['a'] / time['b'], weight, 0.15 * weight);
  }
}

// An owner of many tasks has used much. One that comes later has saved kSavedSeconds, and no more of the time before.
TEST(TaskQueue, WhoComesLaterHasSavedSome) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 200; ++n) Push(&queue, &ran, 'a', 1);
  for (int n = 0; n < 100; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 10);
  ran.clear();
  for (int n = 0; n < 40; ++n) Push(&queue, &ran, 'b', 1);
  for (int n = 0; n < 30; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 10);
  EXPECT_NEAR(std::count(ran.begin(), ran.end(), 'b'), 10 + 20 / 2, 1) << ran;
  EXPECT_NE(ran.find("bbbbbbbbb"), std::string::npos) << ran;
}

// The ratio of the weights alone decides how much time a has saved when it comes back, and when its turn is.
TEST(TaskQueue, AllWeightsCanBeMultiplied) {
  constexpr double kTask = TaskQueue::kSavedSeconds / 16;
  for (const double ratio : {1.0, 8.0, 1.0 / 8}) {
    std::map<double, std::string> ran;
    for (const double weight : {1.0, 128.0, 1.0 / 128}) {
      TaskQueue queue;
      std::string& order = ran[weight];
      for (int n = 0; n < 400; ++n) Push(&queue, &order, 'b', weight);
      for (int n = 0; n < 200; ++n) RunNext(&queue, kTask);
      for (int n = 0; n < 100; ++n) Push(&queue, &order, 'a', weight * ratio);
      for (int n = 0; n < 100; ++n) RunNext(&queue, kTask);
    }
    EXPECT_EQ(ran[1], ran[128]) << ratio;
    EXPECT_EQ(ran[1], ran[1.0 / 128]) << ratio;
    const auto saved = static_cast<double>(ran[1].find('b', 200)) - 200;
    EXPECT_NEAR(saved * kTask, TaskQueue::kSavedSeconds * std::min(ratio, 1.0), 1.5 * kTask) << ratio;
  }
}

// l begins alone, so it has saved a second. h, which comes then, does not wait until that is used.
TEST(TaskQueue, AHeavierOwnerIsNotHeldBackByWhatALighterOneHasSaved) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 100; ++n) Push(&queue, &ran, 'l', 0.01);
  RunNext(&queue, 0.01);
  TaskQueue::Taken runs = queue.Take();
  for (int n = 0; n < 100; ++n) Push(&queue, &ran, 'h', 1);
  queue.Charge(&runs, 0.01);
  queue.End(&runs);
  ran.clear();
  for (int n = 0; n < 50; ++n) RunNext(&queue, 0.01);
  EXPECT_LE(std::count(ran.begin(), ran.end(), 'l'), 1) << ran;
  while (queue.size() > 0) RunNext(&queue, 0);
}

// b asks for half of the time, in bursts of twenty tasks. Each of them ends no later than one task of a after it would
// end if a were not there.
TEST(TaskQueue, WhoAsksForItsShareInBurstsWaitsForOneTask) {
  constexpr double kTask = TaskQueue::kSavedSeconds / 100;
  TaskQueue queue;
  std::string ran;
  double now = 0, burst = 0;
  int ended = 20;
  for (int n = 0; n < 2000; ++n) Push(&queue, &ran, 'a', 1);
  for (int n = 0; n < 2000; ++n) {
    if (now >= burst + 40 * kTask) {
      burst += 40 * kTask;
      EXPECT_EQ(ended, 20) << burst;
      ended = 0;
      for (int m = 0; m < 20; ++m) Push(&queue, &ran, 'b', 1);
    }
    RunNext(&queue, kTask);
    now += kTask;
    if (ran.back() != 'b') continue;
    ++ended;
    EXPECT_LE(now, burst + (ended + 1.5) * kTask) << burst;
  }
}

TEST(TaskQueue, TasksThatRunCountAtTheirOwnersAverage) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 8; ++n) Push(&queue, &ran, 'a', 1);
  for (int n = 0; n < 4; ++n) RunNext(&queue, 1);
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'b', 1);
  // Three threads take a task each before any ends.
  std::string taken_from;
  std::vector<TaskQueue::Taken> taken;
  for (int n = 0; n < 3; ++n) {
    taken.push_back(queue.Take());
    taken_from += TaskQueue::OwnerOf(taken.back()).name;
  }
  EXPECT_NE(taken_from.find('a'), std::string::npos) << taken_from;
  EXPECT_NE(taken_from.find('b'), std::string::npos) << taken_from;
  for (TaskQueue::Taken& one : taken) queue.End(&one);
}

TEST(TaskQueue, NobodysTasksComeFirst) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 3; ++n) Push(&queue, &ran, 'a', 1);
  RunNext(&queue, 1);
  for (int n = 0; n < 3; ++n) queue.Push([&ran] { ran += '-'; }, Lane::kBulk, kNobody);
  while (queue.size() > 0) RunNext(&queue, 1);
  EXPECT_EQ(ran, "a---aa");
}

TEST(TaskQueue, SmallTasksOfTheSameOwnerOrOfWhoHasUsedLessRunBetweenSlabs) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'a', 1);
  TaskQueue::Taken bulk = queue.Take();
  for (const Lane lane : {Lane::kBulk, Lane::kSmall}) Push(&queue, &ran, 'b', 1, lane);
  EXPECT_EQ(queue.TakeBetween(&bulk).account, nullptr) << "a has used as little as b";
  queue.Charge(&bulk, 1);
  Push(&queue, &ran, 'a', 1, Lane::kSmall);
  for (const std::string owner : {"b", "a"}) {
    TaskQueue::Taken between = queue.TakeBetween(&bulk);
    ASSERT_NE(between.account, nullptr);
    EXPECT_EQ(TaskQueue::OwnerOf(between).name, owner);
    EXPECT_EQ(between.lane, Lane::kSmall);
    queue.End(&between);
  }
  EXPECT_EQ(queue.TakeBetween(&bulk).account, nullptr) << "no bulk task";
  queue.End(&bulk);
}

TEST(TaskQueue, ItIsTheTurnOfWhoHasUsedLessAndHasABulkTaskThatDoesNotBlock) {
  constexpr double kLess = TaskQueue::kTurnSeconds / 2, kEnough = 2 * TaskQueue::kTurnSeconds;
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'a', 1);
  TaskQueue::Taken bulk = queue.Take();
  queue.Charge(&bulk, kEnough);
  EXPECT_FALSE(queue.IsTurnOfOther(bulk)) << "the same owner's";
  Push(&queue, &ran, 'b', 1, Lane::kSmall);
  EXPECT_FALSE(queue.IsTurnOfOther(bulk)) << "a small one";
  Push(&queue, &ran, 'c', 1, Lane::kBlocking);
  EXPECT_FALSE(queue.IsTurnOfOther(bulk)) << "one that may block";
  Push(&queue, &ran, 'b', 1);
  EXPECT_TRUE(queue.IsTurnOfOther(bulk));
  queue.End(&bulk);
  while (queue.size() > 0) RunNext(&queue, 0);

  for (const double weight : {1.0, 100.0, 0.01}) {
    for (const char owner : {'a', 'b'}) Push(&queue, &ran, owner, weight);
    bulk = queue.Take();
    queue.Charge(&bulk, kLess);
    EXPECT_FALSE(queue.IsTurnOfOther(bulk)) << "used less, but not by enough: " << weight;
    queue.Charge(&bulk, kEnough);
    EXPECT_TRUE(queue.IsTurnOfOther(bulk)) << weight;
    queue.End(&bulk);
    while (queue.size() > 0) RunNext(&queue, 0);
  }
}

// The queue compares what an owner has used, without what it was charged in advance, and takes that back when the task
// lets others run.
TEST(TaskQueue, AnOwnerOfLongTasksDoesNotWaitWithItsNextOne) {
  TaskQueue queue;
  std::string ran;
  Push(&queue, &ran, 'a', 1);
  RunNext(&queue, 100);
  for (const char owner : {'a', 'b', 'c'}) Push(&queue, &ran, owner, 1);
  TaskQueue::Taken bulk = queue.Take();
  EXPECT_EQ(TaskQueue::OwnerOf(bulk).name, "a");
  EXPECT_GT(bulk.expected, 1);
  EXPECT_FALSE(queue.IsTurnOfOther(bulk));
  queue.Pause(&bulk);
  EXPECT_EQ(bulk.expected, 0);
  TaskQueue::Taken next = queue.Take();
  EXPECT_EQ(TaskQueue::OwnerOf(next).name, "b");
  queue.Charge(&next, 2 * TaskQueue::kTurnSeconds);
  queue.Push([] {}, Lane::kTurn, TaskQueue::OwnerOf(bulk));
  EXPECT_TRUE(queue.IsTurnOfOther(next));
  queue.End(&next);
  queue.End(&bulk);
}

TEST(TaskQueue, ATaskThatLetOthersRunComesFirstAgainAmongItsOwnersBulkTasks) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 3; ++n) Push(&queue, &ran, 'a', 1);
  TaskQueue::Taken bulk = queue.Take();
  queue.Charge(&bulk, 1);
  Push(&queue, &ran, 'b', 1);
  Push(&queue, &ran, 'A', 1);
  for (const char turn : {'1', '2'}) {
    queue.Push([&ran, turn] { ran += turn; }, Lane::kTurn, TaskQueue::OwnerOf(bulk));
  }
  for (int n = 0; n < 2; ++n) RunNext(&queue, 0);
  EXPECT_EQ(ran, "Ab") << "in the order of names, as both have used nothing";
  for (int n = 0; n < 2; ++n) RunNext(&queue, 0);
  EXPECT_EQ(ran, "Ab12");
  queue.End(&bulk);
  while (queue.size() > 0) RunNext(&queue, 0);
  EXPECT_EQ(ran, "Ab12aa");
}

TEST(TaskQueue, SmallTasksThatTookLongMayNotFit) {
  TaskQueue queue;
  std::string ran;
  Push(&queue, &ran, 'a', 1);
  TaskQueue::Taken bulk = queue.Take();
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'a', 1, Lane::kSmall);
  TaskQueue::Taken between = queue.TakeBetween(&bulk, 0.1);
  ASSERT_NE(between.account, nullptr);
  queue.Charge(&between, 4);
  queue.End(&between);
  EXPECT_EQ(queue.TakeBetween(&bulk, 0.1).account, nullptr);
  between = queue.TakeBetween(&bulk, 4);
  ASSERT_NE(between.account, nullptr);
  queue.End(&between);
  queue.End(&bulk);
}

TEST(TaskQueue, ASmallTaskThatTookLongCountsAsSeveral) {
  for (const TaskOwner& owner : {kNobody, TaskOwner{"a", 1}}) {
    TaskQueue queue;
    for (int n = 0; n < 3; ++n) queue.Push([] {}, Lane::kSmall, owner);
    queue.Push([] {}, Lane::kBulk, owner);
    const auto take = [&](double seconds) {
      TaskQueue::Taken taken = queue.Take();
      queue.Charge(&taken, seconds);
      const Lane lane = taken.lane;
      queue.End(&taken);
      return lane;
    };
    EXPECT_EQ(take(0.001), Lane::kSmall);
    EXPECT_EQ(take(4), Lane::kSmall);
    EXPECT_EQ(take(0), Lane::kBulk);
    EXPECT_EQ(take(0), Lane::kSmall);
  }
}

// Pushes a task of a connection of the owner "a" that notes the connection's number.
void PushOf(TaskQueue* queue, std::vector<int>* ran, int connection, Lane lane) {
  queue->Push([ran, connection] { ran->push_back(connection); }, lane, {"a", 1, static_cast<uint64_t>(connection)});
}

constexpr Lane kLanes[] = {Lane::kSmall, Lane::kBulk};

TEST(TaskQueue, AConnectionsTaskDoesNotWaitForAllOfAnother) {
  for (const Lane lane : kLanes) {
    TaskQueue queue;
    std::vector<int> ran;
    for (int n = 0; n < 100; ++n) PushOf(&queue, &ran, 1, lane);
    for (int n = 0; n < 50; ++n) RunNext(&queue, 0.01);
    PushOf(&queue, &ran, 2, lane);
    ran.clear();
    for (int n = 0; n < 4; ++n) RunNext(&queue, 0.01);
    EXPECT_EQ(ran, (std::vector<int>{1, 2, 1, 1}));
    while (queue.size() > 0) RunNext(&queue, 0.01);
  }
}

// Connection 1 always has tasks that wait.
TEST(TaskQueue, AConnectionThatHasUsedLessComesFirst) {
  for (const Lane lane : kLanes) {
    TaskQueue queue;
    std::vector<int> ran;
    for (int n = 0; n < 300; ++n) PushOf(&queue, &ran, 1, lane);
    PushOf(&queue, &ran, 2, lane);
    for (int n = 0; n < 200; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 100);
    ran.clear();
    for (int n = 0; n < 90; ++n) PushOf(&queue, &ran, 2, lane);
    for (int n = 0; n < 90; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 100);
    EXPECT_EQ(ran, std::vector<int>(90, 2)) << "of what it has saved";
    for (int n = 0; n < 40; ++n) PushOf(&queue, &ran, 2, lane);
    ran.clear();
    for (int n = 0; n < 40; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 100);
    EXPECT_NEAR(std::count(ran.begin(), ran.end(), 2), 10 + 30 / 2, 1) << "no more than a second";
    while (queue.size() > 0) RunNext(&queue, 0);
  }
}

// Each of many connections has one task. The one that waits has used as much as any.
TEST(TaskQueue, NewConnectionsDoNotKeepAnotherWaiting) {
  for (const Lane lane : kLanes) {
    TaskQueue queue;
    std::vector<int> ran;
    for (int n = 0; n < 2; ++n) PushOf(&queue, &ran, 1000, lane);
    RunNext(&queue, 1);
    for (int connection = 0; connection < 20; ++connection) {
      for (const int one : {connection, 100 + connection}) PushOf(&queue, &ran, one, lane);
      RunNext(&queue, 0.01);
    }
    EXPECT_LE(std::find(ran.begin() + 1, ran.end(), 1000) - ran.begin(), 3);
    while (queue.size() > 0) RunNext(&queue, 0);
  }
}

// Connections 2 to 6 wait while connection 1 computes for long, because nobody else was there.
TEST(TaskQueue, ANewConnectionDoesNotWaitUntilThoseThatWaitedHaveUsedAsMuchAsAnother) {
  TaskQueue queue;
  std::vector<int> ran;
  for (int n = 0; n < 2; ++n) PushOf(&queue, &ran, 1, Lane::kBulk);
  TaskQueue::Taken first = queue.Take();
  for (int n = 0; n < 100; ++n) {
    for (int connection = 2; connection <= 6; ++connection) PushOf(&queue, &ran, connection, Lane::kSmall);
  }
  queue.Charge(&first, 20);
  queue.End(&first);
  PushOf(&queue, &ran, 7, Lane::kSmall);
  for (int n = 0; n < 20; ++n) RunNext(&queue, 0.01);
  EXPECT_EQ(std::count(ran.begin(), ran.end(), 7), 1);
  while (queue.size() > 0) RunNext(&queue, 0);
}

// An owner's or connection's time that was charged while it ran counts when another one comes.
TEST(TaskQueue, WhoComesWhileALongTaskRunsHasSavedNoMore) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'a', 1);
  TaskQueue::Taken first = queue.Take();
  queue.Charge(&first, 20);
  for (int n = 0; n < 40; ++n) Push(&queue, &ran, 'b', 1);
  queue.End(&first);
  for (int n = 0; n < 15; ++n) RunNext(&queue, TaskQueue::kSavedSeconds / 10);
  EXPECT_NEAR(ran.find('a'), 10, 1) << ran;
  while (queue.size() > 0) RunNext(&queue, 0);
}

// New connections come one after another, two at a time, each with a task of five seconds.
TEST(TaskQueue, NewConnectionsDoNotKeepOneThatComesBackWaiting) {
  for (const Lane lane : kLanes) {
    TaskQueue queue;
    std::vector<int> ran;
    PushOf(&queue, &ran, 1000, lane);
    TaskQueue::Taken first = queue.Take();
    int connection = 0;
    for (; connection < 2; ++connection) PushOf(&queue, &ran, connection, lane);
    queue.Charge(&first, 28);
    queue.End(&first);
    PushOf(&queue, &ran, 1000, lane);
    for (; connection < 12; ++connection) {
      RunNext(&queue, 5);
      PushOf(&queue, &ran, connection, lane);
    }
    EXPECT_LE(std::find(ran.begin(), ran.end(), 1000) - ran.begin(), 4);
    while (queue.size() > 0) RunNext(&queue, 0);
  }
}

// A connection's bulk tasks do not count among small ones.
TEST(TaskQueue, ASmallTaskDoesNotWaitBecauseOfItsConnectionsBulkTasks) {
  TaskQueue queue;
  std::vector<int> ran;
  PushOf(&queue, &ran, 1, Lane::kBulk);
  TaskQueue::Taken bulk = queue.Take();
  for (int n = 0; n < 20; ++n) PushOf(&queue, &ran, 2, Lane::kSmall);
  queue.Charge(&bulk, 20);
  for (int n = 0; n < 5; ++n) {
    PushOf(&queue, &ran, 1, Lane::kSmall);
    for (int m = 0; m < 2; ++m) RunNext(&queue, 0.01);
    EXPECT_EQ(std::count(ran.begin(), ran.end(), 1), n + 1);
  }
  queue.End(&bulk);
  while (queue.size() > 0) RunNext(&queue, 0);
}

// x has computed for long, while y waited with many small tasks. Small tasks of x run soon nevertheless, between the
// slabs of its long one and afterwards, but only for a part of the time.
TEST(TaskQueue, SmallTasksOfWhoHasUsedMoreRunOutOfTurn) {
  constexpr double kTask = 0.01;
  TaskQueue queue;
  std::string ran;
  Push(&queue, &ran, 'x', 1);
  TaskQueue::Taken bulk = queue.Take();
  for (int n = 0; n < 1000; ++n) Push(&queue, &ran, 'y', 1, Lane::kSmall);
  for (int slab = 0; slab < 10; ++slab) {
    if (slab % 5 == 0) Push(&queue, &ran, 'x', 1, Lane::kSmall);
    queue.Charge(&bulk, 1);
    TaskQueue::Taken small = queue.TakeBetween(&bulk);
    small.task();
    queue.Charge(&small, kTask);
    queue.End(&small);
  }
  EXPECT_EQ(std::count(ran.begin(), ran.end(), 'x'), 2) << ran;
  queue.End(&bulk);
  for (int n = 0; n < 1000; ++n) Push(&queue, &ran, 'x', 1, Lane::kSmall);
  ran.clear();
  for (int n = 0; n < 900; ++n) RunNext(&queue, kTask);
  EXPECT_NEAR(std::count(ran.begin(), ran.end(), 'x'), 100, 5) << "one in nine";
  EXPECT_LT(ran.find('x'), 3U);
  while (queue.size() > 0) RunNext(&queue, 0);
}

TEST(TaskQueue, SmallTasksOfLittleWeightGetNoMoreOutOfTurn) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 500; ++n) {
    Push(&queue, &ran, 'a', 1);
    Push(&queue, &ran, 'l', 0.001, Lane::kSmall);
  }
  for (int n = 0; n < 400; ++n) RunNext(&queue, 0.01);
  EXPECT_LE(std::count(ran.begin(), ran.end(), 'l'), 2);
  while (queue.size() > 0) RunNext(&queue, 0);
}

// h computes for long, and has a small task from time to time, which never waits. Then b comes with many.
TEST(TaskQueue, WhoComesHasNotSavedTheTimeOfSmallTasksThatDidNotWait) {
  constexpr double kSmallTask = 0.005;
  TaskQueue queue;
  std::string ran;
  Push(&queue, &ran, 'h', 1);
  TaskQueue::Taken bulk = queue.Take();
  for (int n = 0; n < 1000; ++n) {
    queue.Charge(&bulk, 0.3);
    Push(&queue, &ran, 'h', 1, Lane::kSmall);
    RunNext(&queue, kSmallTask);
  }
  for (int n = 0; n < 100; ++n) Push(&queue, &ran, 'b', 1, Lane::kSmall);
  Push(&queue, &ran, 'h', 1, Lane::kSmall);
  ran.clear();
  for (int n = 0; n < 10; ++n) RunNext(&queue, kSmallTask);
  EXPECT_NE(ran.find('h'), std::string::npos) << ran;
  queue.End(&bulk);
  while (queue.size() > 0) RunNext(&queue, 0);
}

TEST(TaskQueue, ANewOwnerDoesNotWaitUntilThoseThatWaitedHaveUsedAsMuchAsAnother) {
  TaskQueue queue;
  std::string ran;
  for (int n = 0; n < 2; ++n) Push(&queue, &ran, 'x', 1);
  TaskQueue::Taken first = queue.Take();
  for (int n = 0; n < 100; ++n) {
    for (const char owner : {'a', 'b', 'c'}) Push(&queue, &ran, owner, 1);
  }
  queue.Charge(&first, 20);
  queue.End(&first);
  Push(&queue, &ran, 'x', 1, Lane::kSmall);
  TaskQueue::Taken small = queue.TakeSmall();  // out of turn: the others wait with bulk tasks
  queue.End(&small);
  Push(&queue, &ran, 'y', 1);
  for (int n = 0; n < 4; ++n) RunNext(&queue, 0.01);
  EXPECT_EQ(ran, "abcy");
  while (queue.size() > 0) RunNext(&queue, 0);
}

TEST(TaskQueue, SmallTasksOfAllConnectionsOfAnOwnerComeBeforeItsBulkOnes) {
  TaskQueue queue;
  std::vector<int> ran;
  for (int n = 0; n < 12; ++n) PushOf(&queue, &ran, 1 + n % 2, Lane::kSmall);
  for (const int connection : {0, 3}) PushOf(&queue, &ran, connection, Lane::kBulk);
  while (queue.size() > 0) RunNext(&queue, 0.001);
  ASSERT_EQ(ran.size(), 14U);
  EXPECT_EQ(ran[8], 0);
  EXPECT_EQ(ran[13], 3);
  for (int n = 0; n < 8; ++n) EXPECT_EQ(ran[n], 1 + n % 2);
}

TEST(TaskQueue, ATaskThatLetOthersRunComesBeforeThoseOfItsOwnersOtherConnections) {
  TaskQueue queue;
  std::vector<int> ran;
  for (const int connection : {1, 2}) PushOf(&queue, &ran, connection, Lane::kBulk);
  TaskQueue::Taken bulk = queue.Take();
  queue.Charge(&bulk, 1);
  queue.Push([&ran] { ran.push_back(-1); }, Lane::kTurn, TaskQueue::OwnerOf(bulk));
  while (queue.size() > 0) RunNext(&queue, 0);
  EXPECT_EQ(ran, (std::vector<int>{-1, 2}));
  queue.End(&bulk);
}

TEST(TaskQueue, ItIsNotTheTurnOfAnOwnerThatTakesNoPlaces) {
  TaskQueue queue;
  queue.Push([] {}, Lane::kBulk, {"a", 1, 0, /*takes_places=*/false});
  TaskQueue::Taken bulk = queue.Take();
  queue.Charge(&bulk, 1);
  queue.Push([] {}, Lane::kBulk, {"b", 1, 0, /*takes_places=*/false});
  EXPECT_FALSE(queue.IsTurnOfOther(bulk));
  queue.End(&bulk);
  RunNext(&queue, 0);
}

TEST(TaskQueue, OwnersAndConnectionsWithoutTasksAreForgotten) {
  constexpr size_t kMany = 10'000, kMostKept = 1000;
  TaskQueue queue;
  const auto push = [&](const std::string& name, size_t connection) {
    queue.Push([] {}, Lane::kSmall, {name, 1e9, connection});
  };
  push("a", kMany);  // an owner and its connection that are not idle
  TaskQueue::Taken runs = queue.Take();
  for (size_t n = 0; n < kMany; ++n) {
    push("a", n);
    RunNext(&queue, 1);
    push("b" + std::to_string(n), n);
    RunNext(&queue, 1);
  }
  EXPECT_LE(queue.CountKept(), kMostKept);
  EXPECT_EQ(TaskQueue::OwnerOf(runs).connection, kMany);
  queue.End(&runs);
  EXPECT_LE(queue.CountKept(), 2U);

  for (size_t n = 0; n < kMany; ++n) push("a", n);
  EXPECT_GT(queue.CountKept(), kMany);
  while (queue.size() > 0) RunNext(&queue, 1);
  EXPECT_LE(queue.CountKept(), 2U);
}

TEST(TaskQueue, WhenNothingWaitsAllBeginAnew) {
  TaskQueue queue;
  std::string ran;
  Push(&queue, &ran, 'b', 1);
  RunNext(&queue, 1e-3);
  Push(&queue, &ran, 'a', 1);
  RunNext(&queue, 100);
  for (const char name : std::string("ab")) Push(&queue, &ran, name, 1);
  RunNext(&queue, 1);
  EXPECT_EQ(ran, "baa") << "an owner's earlier time does not count";
  RunNext(&queue, 1);
}

}  // namespace
}  // namespace posenc::task_queue_test
