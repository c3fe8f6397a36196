#include "server/trace/otlp_message.h"

#include <string>

#include "posenc/base/status.h"
#include "posenc/base/version.h"

namespace posenc::server {
namespace {

namespace v1 = opentelemetry::proto::trace::v1;
using opentelemetry::proto::common::v1::KeyValue;

// The names of attributes are of this version of the semantic conventions.
constexpr char kSchema[] = "https://opentelemetry.io/schemas/1.44.0";
constexpr size_t kMostQuotedBytes = 1024;
constexpr uint32_t kKnowsIfRemote = 0x100, kIsRemote = 0x200;

void Add(const std::string& key, const CallSpan::Value& value, google::protobuf::RepeatedPtrField<KeyValue>* to) {
  KeyValue* const attribute = to->Add();
  attribute->set_key(key);
  if (const auto* text = std::get_if<std::string>(&value)) {
    attribute->mutable_value()->set_string_value(Quote(*text, kMostQuotedBytes));
  } else {
    attribute->mutable_value()->set_int_value(std::get<int64_t>(value));
  }
}

template <size_t kSize>
std::string BytesOf(const std::array<uint8_t, kSize>& id) {
  return {reinterpret_cast<const char*>(id.data()), kSize};
}

void AddCall(const CallSpan& call, google::protobuf::RepeatedPtrField<v1::Span>* to) {
  v1::Span* const span = to->Add();
  const uint32_t flags = call.context().flags | kKnowsIfRemote;
  span->set_trace_id(BytesOf(call.context().trace_id));
  span->set_span_id(BytesOf(call.context().span_id));
  span->set_trace_state(Quote(call.tracestate(), kMostQuotedBytes));
  if (call.parent() != nullptr) span->set_parent_span_id(BytesOf(call.parent()->span_id));
  span->set_flags(call.parent() != nullptr ? flags | kIsRemote : flags);
  span->set_name(Quote(call.name(), kMostQuotedBytes));
  span->set_kind(v1::Span::SPAN_KIND_SERVER);
  span->set_start_time_unix_nano(call.UnixTimeOf(call.begin()));
  span->set_end_time_unix_nano(call.UnixTimeOf(call.end()));
  for (const auto& [key, value] : call.attributes()) Add(key, value, span->mutable_attributes());
  if (call.is_error()) {
    span->mutable_status()->set_code(v1::Status::STATUS_CODE_ERROR);
    span->mutable_status()->set_message(Quote(call.error(), kMostQuotedBytes));
  }
  uint8_t number = 0;
  for (const CallSpan::PhaseSpan& phase : call.phases()) {
    v1::Span* const child = to->Add();
    child->set_trace_id(span->trace_id());
    // Ids of children follow from that of the call, which is random.
    std::array<uint8_t, 8> id = call.context().span_id;
    id[0] ^= ++number;
    child->set_span_id(BytesOf(id));
    child->set_parent_span_id(span->span_id());
    child->set_trace_state(span->trace_state());
    child->set_flags(flags);
    child->set_name(NameOf(phase.phase));
    child->set_kind(v1::Span::SPAN_KIND_INTERNAL);
    child->set_start_time_unix_nano(call.UnixTimeOf(phase.begin));
    child->set_end_time_unix_nano(call.UnixTimeOf(phase.end));
  }
}

}  // namespace

ExportRequest ToOtlp(absl::Span<const std::unique_ptr<CallSpan>> calls, const TraceSettings::Pairs& resource) {
  ExportRequest request;
  v1::ResourceSpans* const spans = request.add_resource_spans();
  spans->set_schema_url(kSchema);
  for (const auto& [key, value] : resource) Add(key, value, spans->mutable_resource()->mutable_attributes());
  v1::ScopeSpans* const scope = spans->add_scope_spans();
  scope->set_schema_url(kSchema);
  scope->mutable_scope()->set_name("posenc");
  scope->mutable_scope()->set_version(kVersion);
  for (const auto& call : calls) AddCall(*call, scope->mutable_spans());
  return request;
}

}  // namespace posenc::server
