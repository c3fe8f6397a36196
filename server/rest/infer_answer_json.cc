#include "server/rest/infer_answer_json.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "inference/service.pb.h"
#include "posenc/base/status.h"
#include "posenc/transport/slices.h"
#include "posenc/wire/parse.h"
#include "posenc/wire/walker.h"
#include "server/rest/message_json.h"

namespace posenc::server {
namespace {

using inference::ModelInferResponse;
using OutputTensor = ModelInferResponse::InferOutputTensor;

// The bytes of outputs are far from their message's beginning; they are shared, not copied.
struct Response {
  ModelInferResponse message;  // raw_output_contents have tickets
  transport::SlicedPayloads payloads;
};

absl::StatusOr<std::shared_ptr<const Response>> Parse(grpc::ByteBuffer bytes) {
  static const auto* const stripper = new wire::Stripper(
      ModelInferResponse::descriptor(),
      ModelInferResponse::descriptor()->FindFieldByNumber(ModelInferResponse::kRawOutputContentsFieldNumber));
  auto slices = transport::SlicesOf(&bytes);
  if (!slices) return absl::InternalError("an answer that cannot be read");
  transport::SliceStream stream(*slices);
  POSENC_ASSIGN_OR_RETURN(wire::Stripped stripped, stripper->Strip(&stream, wire::kMaxStrippedBytes));
  auto response = std::make_shared<Response>(
      Response{{}, transport::SlicedPayloads(*std::move(slices), std::move(stripped.ranges))});
  if (!response->message.ParseFromString(stripped.message)) return absl::InternalError("an answer that does not parse");
  return std::shared_ptr<const Response>(std::move(response));
}

// Calls `use` with each contiguous piece of a payload.
template <typename Use>
void ForEachPiece(const transport::SlicedPayloads& payloads, size_t ticket, Use use) {
  for (size_t at = 0; at < payloads.SizeOf(ticket);) {
    const absl::Span<const std::byte> piece = payloads.PieceOf(ticket, at);
    use(piece);
    at += piece.size();
  }
}

template <typename Element>
absl::Status AppendElements(const OutputTensor& output, const std::string& bytes, std::string* text) {
  for (size_t n = 0; n * sizeof(Element) < bytes.size(); ++n) {
    Element element;
    std::memcpy(&element, bytes.data() + n * sizeof(Element), sizeof(Element));
    if (n > 0) *text += ',';
    if constexpr (std::is_floating_point_v<Element>) {
      if (!std::isfinite(element)) {
        return InvalidArgument("UNSUPPORTED", "outputs", fmt::format("{}[{}] is {}", output.name(), n, element),
                               "must be binary (binary_data): JSON has no infinities and no NaN");
      }
    }
    fmt::format_to(std::back_inserter(*text), "{}", element);  // floats: so that they parse to the same bits
    if constexpr (std::is_floating_point_v<Element>) {
      if (element == 0 && std::signbit(element)) *text += ".0";  // "-0" is an integer to some parsers
    }
  }
  return absl::OkStatus();
}

absl::Status AppendData(const OutputTensor& output, const std::string& bytes, std::string* text) {
  const std::string& type = output.datatype();
  if (type == "FP32") return AppendElements<float>(output, bytes, text);
  if (type == "FP64") return AppendElements<double>(output, bytes, text);
  if (type == "INT32") return AppendElements<int32_t>(output, bytes, text);
  if (type == "INT64") return AppendElements<int64_t>(output, bytes, text);
  if (type == "BOOL") return AppendElements<bool>(output, bytes, text);
  return InvalidArgument("UNSUPPORTED", "outputs", output.name(),
                         fmt::format("must be binary (binary_data): JSON has no {}", type));
}

}  // namespace

absl::StatusOr<HttpAnswer> WriteInferJson(const grpc::ByteBuffer& bytes, const OutputForms& forms) {
  POSENC_ASSIGN_OR_RETURN(const std::shared_ptr<const Response> response, Parse(bytes));
  const ModelInferResponse& message = response->message;
  HttpAnswer answer;
  std::string& text = answer.body;
  text = fmt::format("{{\"model_name\":{},\"model_version\":{}", JsonText(message.model_name()),
                     JsonText(message.model_version()));
  if (!message.id().empty()) text += fmt::format(",\"id\":{}", JsonText(message.id()));
  text += fmt::format(",\"parameters\":{},\"outputs\":[", JsonText(ToJson(message.parameters())));
  size_t json_bytes = 0;
  for (int n = 0; n < message.outputs_size(); ++n) {
    const OutputTensor& output = message.outputs(n);
    text += fmt::format("{}{{\"name\":{},\"datatype\":{},\"shape\":[{}]", n == 0 ? "" : ",", JsonText(output.name()),
                        JsonText(output.datatype()), fmt::join(output.shape(), ","));
    const std::string& ticket_text = message.raw_output_contents(n);
    const size_t ticket = ticket_text.empty() ? 0 : wire::TicketOf(ticket_text);
    const size_t size = ticket_text.empty() ? 0 : response->payloads.SizeOf(ticket);
    const OutputForm form = forms.Of(output.name());
    if (form == OutputForm::kSharedMemory) {
      text += '}';
    } else if (form == OutputForm::kBinary) {
      text += fmt::format(",\"parameters\":{{\"binary_data_size\":{}}}}}", size);
      if (size == 0) continue;
      ForEachPiece(response->payloads, ticket, [&](absl::Span<const std::byte> piece) {
        answer.more.push_back({piece, response});
      });
    } else {
      json_bytes += size;
      if (json_bytes > kMostJsonElementBytes) {
        return InvalidArgument("OUT_OF_RANGE", "outputs", fmt::format("{} bytes of elements", json_bytes),
                               fmt::format("must be at most {} in JSON: larger outputs must be binary (binary_data)",
                                           kMostJsonElementBytes));
      }
      std::string elements;
      if (size > 0) {
        ForEachPiece(response->payloads, ticket, [&](absl::Span<const std::byte> piece) {
          elements.append(reinterpret_cast<const char*>(piece.data()), piece.size());
        });
      }
      text += ",\"data\":[";
      POSENC_RETURN_IF_ERROR(AppendData(output, elements, &text));
      text += "]}";
    }
  }
  text += "]}";
  if (answer.more.empty()) return answer;
  answer.content_type = "application/octet-stream";
  answer.fields.emplace_back("Inference-Header-Content-Length", fmt::format("{}", text.size()));
  return answer;
}

}  // namespace posenc::server
