// Requests of the Open Inference Protocol: their entries are counted before they are parsed.
#include <gtest/gtest.h>

#include <string>

#include "inference/service.pb.h"
#include "posenc/base/interruption.h"
#include "server/oip/parse.h"

namespace posenc::server::parse_test {
namespace {

TEST(ParseInference, CanBeInterrupted) {
  std::string serialized;
  for (int n = 0; n < 1 << 20; ++n) serialized += std::string("\x0a\0", 2);  // model_name, empty
  int points = 0;
  const Cancellation count = [&points] { return ++points < 10 ? absl::OkStatus() : absl::CancelledError(); };
  const InterruptionScope scope(&count);
  inference::ModelInferRequest request;
  EXPECT_THROW((void)ParseInference(serialized, &request), ComputationStopped);
}

}  // namespace
}  // namespace posenc::server::parse_test
