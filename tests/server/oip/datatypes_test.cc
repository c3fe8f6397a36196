// Typed contents of tensors.
#include "server/oip/datatypes.h"

#include <gtest/gtest.h>

#include "posenc/base/interruption.h"

namespace posenc::server::datatypes_test {
namespace {

TEST(BytesOf, CanBeInterrupted) {
  inference::InferTensorContents contents;
  contents.mutable_int64_contents()->Resize(1 << 20, 7);
  int points = 0;
  const Cancellation count = [&points] { return ++points < 10 ? absl::OkStatus() : absl::CancelledError(); };
  const InterruptionScope scope(&count);
  EXPECT_THROW((void)BytesOf("position_ids", v1::DATA_TYPE_INT64, contents), ComputationStopped);
}

TEST(BytesOf, AreThoseOfTheType) {
  inference::InferTensorContents contents;
  contents.mutable_int_contents()->Add(0x01020304);
  contents.mutable_int_contents()->Add(-1);
  EXPECT_EQ(*BytesOf("key_valid", v1::DATA_TYPE_INT32, contents), "\x04\x03\x02\x01\xff\xff\xff\xff");
}

}  // namespace
}  // namespace posenc::server::datatypes_test
