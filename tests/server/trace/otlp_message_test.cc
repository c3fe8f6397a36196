#include "server/trace/otlp_message.h"

#include <chrono>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/base/version.h"

namespace posenc::server::otlp_message_test {
namespace {

using opentelemetry::proto::common::v1::KeyValue;
using opentelemetry::proto::trace::v1::ScopeSpans;
using opentelemetry::proto::trace::v1::Span;
using opentelemetry::proto::trace::v1::Status;
using testing::ElementsAre;

// The example of W3C's Trace Context, and another span of its trace.
const TraceContext kParent = *ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
const TraceContext kCall = *ParseTraceparent("00-4bf92f3577b34da6a3ce929d0e0e4736-b7ad6b7169203331-01");
constexpr char kTraceId[] = "\x4b\xf9\x2f\x35\x77\xb3\x4d\xa6\xa3\xce\x92\x9d\x0e\x0e\x47\x36";
constexpr char kParentId[] = "\x00\xf0\x67\xaa\x0b\xa9\x02\xb7", kCallId[] = "\xb7\xad\x6b\x71\x69\x20\x33\x31";

std::unique_ptr<CallSpan> Root(const std::string& name = "Service/Method") {
  return std::make_unique<CallSpan>(kCall, nullptr, "", name);
}

ExportRequest RequestOf(absl::Span<const std::unique_ptr<CallSpan>> calls, const TraceSettings::Pairs& resource = {}) {
  ExportRequest request = ToOtlp(calls, resource);
  EXPECT_EQ(request.resource_spans_size(), 1);
  EXPECT_EQ(request.resource_spans(0).scope_spans_size(), 1);
  return request;
}

// The spans of one call: its own, then those of its phases.
std::vector<Span> SpansOf(const std::unique_ptr<CallSpan>& call) {
  const ExportRequest request = RequestOf({&call, 1});
  const auto& spans = request.resource_spans(0).scope_spans(0).spans();
  return {spans.begin(), spans.end()};
}

std::vector<std::string> NamesOf(const std::vector<Span>& spans) {
  std::vector<std::string> names;
  for (const Span& span : spans) names.push_back(span.name());
  return names;
}

// The phases follow each other without a gap, from the call's begin to its end.
void ExpectPhasesAddUp(const std::vector<Span>& spans) {
  ASSERT_GE(spans.size(), 2u);
  uint64_t time = spans[0].start_time_unix_nano();
  for (size_t n = 1; n < spans.size(); ++n) {
    EXPECT_EQ(spans[n].start_time_unix_nano(), time) << n;
    EXPECT_GE(spans[n].end_time_unix_nano(), time) << n;
    time = spans[n].end_time_unix_nano();
  }
  EXPECT_EQ(time, spans[0].end_time_unix_nano());
}

// The numbers of flags are those of SpanFlags in opentelemetry-proto's trace.proto: 0x100 says that 0x200 is known,
// which says that the parent is in another process.
TEST(OtlpMessage, ACallOfAnotherProcess) {
  const auto call = std::make_unique<CallSpan>(kCall, &kParent, "vendor=1,other=2", "Service/Method");
  call->Enter(Phase::kQueue);
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  ASSERT_EQ(spans.size(), 3u);
  EXPECT_EQ(spans[0].trace_id(), std::string(kTraceId, 16));
  EXPECT_EQ(spans[0].span_id(), std::string(kCallId, 8));
  EXPECT_EQ(spans[0].parent_span_id(), std::string(kParentId, 8));
  EXPECT_EQ(spans[0].trace_state(), "vendor=1,other=2");
  EXPECT_EQ(spans[0].flags(), 0x301u);
  EXPECT_EQ(spans[0].name(), "Service/Method");
  EXPECT_EQ(spans[0].kind(), Span::SPAN_KIND_SERVER);
  for (size_t n = 1; n < spans.size(); ++n) {
    EXPECT_EQ(spans[n].trace_id(), std::string(kTraceId, 16));
    EXPECT_EQ(spans[n].parent_span_id(), std::string(kCallId, 8));
    EXPECT_EQ(spans[n].trace_state(), "vendor=1,other=2");
    EXPECT_EQ(spans[n].flags(), 0x101u) << "the parent of a phase is in this process";
    EXPECT_EQ(spans[n].kind(), Span::SPAN_KIND_INTERNAL);
    EXPECT_FALSE(spans[n].has_status());
    EXPECT_EQ(spans[n].attributes_size(), 0);
  }
}

TEST(OtlpMessage, TheRootOfATraceHasNoParent) {
  const auto call = Root();
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  ASSERT_EQ(spans.size(), 1u) << "a call without phases";
  EXPECT_EQ(spans[0].parent_span_id(), "");
  EXPECT_EQ(spans[0].trace_state(), "");
  EXPECT_EQ(spans[0].flags(), 0x101u);
  EXPECT_EQ(call->trace_id(), "4bf92f3577b34da6a3ce929d0e0e4736") << "which the log has";
}

TEST(OtlpMessage, PhasesAddUpToTheCall) {
  const auto call = Root("a");
  for (const Phase phase : {Phase::kReceive, Phase::kQueue, Phase::kPrepare, Phase::kCompute, Phase::kSend}) {
    call->Enter(phase);
    call->Enter(phase);  // goes on
  }
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  EXPECT_THAT(NamesOf(spans), ElementsAre("a", "receive", "queue", "prepare", "compute", "send"));
  ExpectPhasesAddUp(spans);
}

TEST(OtlpMessage, ALongStreamHasAtMost32Phases) {
  const auto call = Root("a");
  for (int n = 0; n < 100; ++n) {
    call->Enter(Phase::kCompute);
    call->Enter(Phase::kReceive);
  }
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  EXPECT_EQ(spans.size(), 33u);
  ExpectPhasesAddUp(spans);
  std::set<std::string> ids;
  for (const Span& span : spans) {
    EXPECT_EQ(span.span_id().size(), 8u);
    EXPECT_NE(span.span_id(), std::string(8, '\0'));
    ids.insert(span.span_id());
  }
  EXPECT_EQ(ids.size(), 33u) << "ids that two spans have";
}

TEST(OtlpMessage, TimesAreThoseOfTheSystemClock) {
  const auto since_1970 = [] {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
  };
  const auto call = Root();
  call->Enter(Phase::kCompute);
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  EXPECT_NEAR(static_cast<double>(spans[0].start_time_unix_nano()) / 1e9, since_1970(), 3600);
  EXPECT_EQ(spans[0].end_time_unix_nano() - spans[0].start_time_unix_nano(),
            static_cast<uint64_t>(std::chrono::nanoseconds(call->end() - call->begin()).count()));
}

TEST(OtlpMessage, AttributesAreTextsAndIntegers) {
  const auto call = Root();
  call->Set("text", "a");
  call->Set("string", std::string("b c"));
  call->Set("empty", "");
  call->Set("negative", -1);
  call->Set("large", INT64_MAX);
  call->Set("size", size_t{7});
  call->End();
  const std::vector<Span> spans = SpansOf(call);
  std::vector<std::string> attributes;
  for (const KeyValue& attribute : spans[0].attributes()) {
    const auto& value = attribute.value();
    attributes.push_back(attribute.key() + (value.has_int_value() ? "=" + std::to_string(value.int_value())
                                                                  : ":" + value.string_value()));
    EXPECT_NE(value.has_int_value(), value.has_string_value());
  }
  EXPECT_THAT(attributes,
              ElementsAre("text:a", "string:b c", "empty:", "negative=-1", "large=9223372036854775807", "size=7"));
}

TEST(OtlpMessage, OnlyACallThatFailedHasAStatus) {
  const auto answered = Root(), failed = Root();
  failed->SetError("device lost");
  answered->End();
  failed->End();
  EXPECT_FALSE(SpansOf(answered)[0].has_status()) << "a server leaves it unset, as the conventions say";
  EXPECT_EQ(SpansOf(failed)[0].status().code(), Status::STATUS_CODE_ERROR);
  EXPECT_EQ(SpansOf(failed)[0].status().message(), "device lost");
}

TEST(OtlpMessage, SaysWhatSendsTheSpans) {
  const auto call = Root();
  call->End();
  const ExportRequest request = RequestOf({&call, 1}, {{"service.name", "a"}, {"host.name", "b"}});
  const auto& attributes = request.resource_spans(0).resource().attributes();
  ASSERT_EQ(attributes.size(), 2);
  EXPECT_EQ(attributes[0].key(), "service.name");
  EXPECT_EQ(attributes[0].value().string_value(), "a");
  EXPECT_EQ(attributes[1].key(), "host.name");
  EXPECT_EQ(attributes[1].value().string_value(), "b");
  const ScopeSpans& scope = request.resource_spans(0).scope_spans(0);
  EXPECT_EQ(scope.scope().name(), "posenc");
  EXPECT_EQ(scope.scope().version(), kVersion);
  EXPECT_THAT(scope.schema_url(), testing::StartsWith("https://opentelemetry.io/schemas/1."));
  EXPECT_EQ(request.resource_spans(0).schema_url(), scope.schema_url());
}

TEST(OtlpMessage, CallsOfABatchFollowEachOther) {
  std::vector<std::unique_ptr<CallSpan>> calls;
  calls.push_back(Root("a"));
  calls.push_back(Root("b"));
  calls[1]->Enter(Phase::kSend);
  for (const auto& call : calls) call->End();
  const ExportRequest request = RequestOf(calls);
  const auto& spans = request.resource_spans(0).scope_spans(0).spans();
  EXPECT_THAT(NamesOf({spans.begin(), spans.end()}), ElementsAre("a", "b", "receive", "send"));
  EXPECT_EQ(RequestOf({}).resource_spans(0).scope_spans(0).spans_size(), 0);
}

// A collector refuses a whole batch if one of its texts is not UTF-8.
TEST(OtlpMessage, BytesThatAreNoUtf8AreEscaped) {
  const std::string bytes("\xff\0\n\xc3", 4), escaped = "\\xff\\x00\\n\\xc3";
  const auto call = std::make_unique<CallSpan>(kCall, &kParent, bytes, bytes);
  call->Set("a", bytes);
  call->Set("b", "pos\xc3\xa9nc");
  call->SetError(bytes);
  call->Enter(Phase::kQueue);
  call->End();
  const ExportRequest request = RequestOf({&call, 1}, {{"c", bytes}});
  ExportRequest received;
  ASSERT_TRUE(received.ParseFromString(request.SerializeAsString())) << "protobuf checks that texts are UTF-8";
  const Span& span = received.resource_spans(0).scope_spans(0).spans(0);
  EXPECT_EQ(span.name(), escaped);
  EXPECT_EQ(span.trace_state(), escaped);
  EXPECT_EQ(received.resource_spans(0).scope_spans(0).spans(1).trace_state(), escaped);
  EXPECT_EQ(span.attributes(0).value().string_value(), escaped);
  EXPECT_EQ(span.attributes(1).value().string_value(), "pos\xc3\xa9nc");
  EXPECT_EQ(span.status().message(), escaped);
  EXPECT_EQ(received.resource_spans(0).resource().attributes(0).value().string_value(), escaped);
}

TEST(OtlpMessage, LongTextsAreCut) {
  const std::string text(5000, 'x'), cut = std::string(1021, 'x') + "...";
  const auto call = Root(text);
  call->Set("a", text);
  call->Set("b", std::string(256, 'y'));
  call->SetError(text);
  call->End();
  const Span span = SpansOf(call)[0];
  EXPECT_EQ(span.name(), cut);
  EXPECT_EQ(span.attributes(0).value().string_value(), std::string(256, 'x'));
  EXPECT_EQ(span.attributes(1).value().string_value(), std::string(256, 'y'));
  EXPECT_EQ(span.status().message(), std::string(256, 'x'));
}

}  // namespace
}  // namespace posenc::server::otlp_message_test
