#include "posenc/wire/parse.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/base/status.h"
#include "posenc/v1/service.pb.h"

namespace posenc::wire::strict_test {
namespace {

void AddUnknown(google::protobuf::Message* message, int number) {
  message->GetReflection()->MutableUnknownFields(message)->AddVarint(number, 1);
}

v1::ApplyRotaryRequest Full() {
  v1::ApplyRotaryRequest request;
  request.mutable_rotary()->mutable_settings()->mutable_rope_parameters()->set_rope_type("default");
  request.mutable_rotary()->mutable_settings()->set_input_pairing(v1::PAIRING_INTERLEAVED);
  request.mutable_positions()->mutable_segments()->add_segment()->mutable_line()->set_count(3);
  request.mutable_positions()->mutable_segments()->add_segment()->mutable_line()->set_count(4);
  request.mutable_precision()->set_preset(v1::PRECISION_PRESET_MODEL);
  request.mutable_hints()->set_request_id("a");
  request.mutable_q()->mutable_tensor()->set_dtype(v1::DATA_TYPE_FP32);
  return request;
}

TEST(RejectUnknown, AcceptsWhatIsKnown) {
  EXPECT_TRUE(RejectUnknown(Full()).ok());
  EXPECT_TRUE(RejectUnknown(v1::ApplyRotaryRequest()).ok());
}

TEST(RejectUnknown, NamesMessageNumberAndPath) {
  v1::ApplyRotaryRequest request = Full();
  AddUnknown(request.mutable_positions()->mutable_segments()->mutable_segment(1), 77);
  const absl::Status status = RejectUnknown(request);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(DetailsOf(status).reason, "UNKNOWN_FIELD");
  EXPECT_EQ(DetailsOf(status).field, "positions.segments.segment[1].77");
  EXPECT_EQ(status.message(), "positions.segments.segment[1].77: is 1; must be a field of posenc.v1.PositionSegment");
}

TEST(RejectUnknown, SeesTheTopLevel) {
  v1::ApplyRotaryRequest request;
  AddUnknown(&request, 4000);
  EXPECT_EQ(RejectUnknown(request).message(), "4000: is 1; must be a field of posenc.v1.ApplyRotaryRequest");
}

TEST(RejectUnknown, SeesTensors) {
  v1::ApplyRotaryRequest request = Full();
  AddUnknown(request.mutable_q()->mutable_tensor(), 3);
  EXPECT_EQ(DetailsOf(RejectUnknown(request)).field, "q.tensor.3");
}

TEST(RejectUnknown, NamesUnknownEnumValues) {
  v1::ApplyRotaryRequest request = Full();
  request.mutable_precision()->set_preset(static_cast<v1::PrecisionPreset>(99));
  const absl::Status status = RejectUnknown(request);
  EXPECT_EQ(DetailsOf(status).reason, "UNKNOWN_VALUE");
  EXPECT_EQ(status.message(), "precision.preset: is 99; must be a value of posenc.v1.PrecisionPreset");

  request = Full();
  request.set_layout(static_cast<v1::Layout>(-1));
  EXPECT_EQ(DetailsOf(RejectUnknown(request)).field, "layout");
}

TEST(RejectUnknown, LeavesHintsAlone) {
  v1::ApplyRotaryRequest request = Full();
  AddUnknown(request.mutable_hints(), 500);
  EXPECT_TRUE(RejectUnknown(request).ok());
}

}  // namespace
}  // namespace posenc::wire::strict_test
