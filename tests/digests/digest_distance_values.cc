// Digests of biases with one value per distance: T5's buckets, KERPLE and Sandwich. No vector code computes them.
#include <fmt/format.h>

#include <cstring>

#include "posenc/methods/bias/bias.h"
#include "posenc/methods/bias/bias_methods.h"
#include "tests/digests/digest_case.h"
#include "tests/digests/digest_inputs.h"

namespace posenc {
namespace {

template <class T>
Block BytesOf(const std::vector<T>& values) {
  Block bytes(values.size() * sizeof(T));
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

// Distances first .. first + count-1.
struct DistanceRun {
  int64_t first;
  int64_t count;
};

Block RunBuckets(Frequencies arithmetic, T5Settings settings, const DistanceRun& d) {
  const absl::Status status = Complete(settings);
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? BytesOf(T5Buckets(arithmetic, settings, d.first, d.count)) : Block(0);
}

Block RunValues(Frequencies arithmetic, BiasMethod method, const DistanceRun& d) {
  const absl::Status status = Complete(method, {});
  EXPECT_TRUE(status.ok()) << status;
  return status.ok() ? BytesOf(DistanceValues(arithmetic, method, d.first, d.count).values) : Block(0);
}

void AddT5(Frequencies arithmetic, std::vector<Case>* cases) {
  const struct {
    int64_t buckets, max_distance;
    DistanceRun distances;
  } kinds[] = {{32, 128, {-200, 401}},
               {34, 27, {-50, 101}},  // float32 falls just below a whole number
               {6, 1000, {-1100, 2201}},
               {100, 777, {-900, 1801}},
               {32, (int64_t{1} << 31) - 1, {-(int64_t{1} << 31) + 1, 300}}};
  for (const auto& kind : kinds) {
    for (const bool bidirectional : {false, true}) {
      const T5Settings settings = {kind.buckets, kind.max_distance, bidirectional};
      const DistanceRun distances = kind.distances;
      cases->push_back(
          {fmt::format("method=t5 frequencies={} num_buckets={} max_distance={} bidirectional={:d} first={} count={}",
                       Name(arithmetic), kind.buckets, kind.max_distance, bidirectional, distances.first,
                       distances.count),
           [=] { return RunBuckets(arithmetic, settings, distances); }});
    }
  }
}

void AddKerple(Frequencies arithmetic, std::vector<Case>* cases) {
  constexpr DistanceRun kDistances[] = {{0, 30}, {-11, 21}, {1000, 9}, {(int64_t{1} << 31) - 10, 9}};
  for (const KerpleKernel kernel : {KerpleKernel::kLog, KerpleKernel::kPower}) {
    for (const DistanceRun& distances : kDistances) {
      const size_t heads = 1 + cases->size() % 4;
      KerpleSettings settings = {.kernel = kernel};
      for (size_t h = 0; h < heads; ++h) {  // all values are within the model's clamp range
        settings.a.push_back(std::abs(RandomReal(1, h, -6, 9)));
        settings.p.push_back(std::abs(RandomReal(2, h, -6, 7)));
      }
      cases->push_back(
          {fmt::format("method=kerple frequencies={} kernel={} heads={} first={} count={}", Name(arithmetic),
                       kernel == KerpleKernel::kLog ? "log" : "power", heads, distances.first, distances.count),
           [=] {
             return RunValues(arithmetic, {settings, std::nullopt}, distances);
           }});
    }
  }
}

void AddSandwich(Frequencies arithmetic, std::vector<Case>* cases) {
  constexpr DistanceRun kDistances[] = {{0, 12}, {-7, 11}, {(int64_t{1} << 20) - 5, 5}};
  for (const SandwichConvention convention : {SandwichConvention::kPaper, SandwichConvention::kSnippet}) {
    for (const DistanceRun& distances : kDistances) {
      const size_t n = cases->size();
      const SandwichSettings settings = {.convention = convention,
                                         .num_heads = Turn<int64_t>(n, {1, 3, 8}),
                                         .dim = Turn<int64_t>(n, {2, 16, 30, 64}),
                                         .base = Turn<double>(n, {10000, 500})};
      cases->push_back(
          {fmt::format("method=sandwich frequencies={} convention={} heads={} dim={} base={} first={} count={}",
                       Name(arithmetic), convention == SandwichConvention::kPaper ? "paper" : "snippet",
                       settings.num_heads, *settings.dim, *settings.base, distances.first, distances.count),
           [=] {
             return RunValues(arithmetic, {settings, std::nullopt}, distances);
           }});
    }
  }
}

TEST(Digest, DistanceValues) {
  std::vector<Case> cases;
  for (const Frequencies arithmetic : kArithmetics) {
    AddT5(arithmetic, &cases);
    AddKerple(arithmetic, &cases);
    AddSandwich(arithmetic, &cases);
  }
  Check("distance_values", cases);
}

}  // namespace
}  // namespace posenc
