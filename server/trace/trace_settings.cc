#include "server/trace/trace_settings.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <climits>
#include <map>
#include <string_view>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "posenc/base/input_file.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"

namespace posenc::server {
namespace {

constexpr char kFlag[] = "--otlp-endpoint";
constexpr size_t kMostValueBytes = size_t{64} << 10;
constexpr size_t kMostPemBytes = size_t{1} << 20;
constexpr int64_t kMostSpans = 1 << 16;

// What OTEL_EXPORTER_OTLP_* set, each also as OTEL_EXPORTER_OTLP_TRACES_*, which comes first.
constexpr std::array kOfExporter = {"ENDPOINT", "INSECURE", "CERTIFICATE", "CLIENT_KEY", "CLIENT_CERTIFICATE",
                                    "HEADERS",  "TIMEOUT",  "COMPRESSION", "PROTOCOL"};
constexpr std::array kOthers = {"OTEL_SDK_DISABLED",        "OTEL_TRACES_EXPORTER",    "OTEL_SERVICE_NAME",
                                "OTEL_RESOURCE_ATTRIBUTES", "OTEL_TRACES_SAMPLER",     "OTEL_TRACES_SAMPLER_ARG",
                                "OTEL_BSP_SCHEDULE_DELAY",  "OTEL_BSP_MAX_QUEUE_SIZE", "OTEL_BSP_MAX_EXPORT_BATCH_SIZE",
                                "OTEL_BSP_EXPORT_TIMEOUT"};

class Variables {
 public:
  explicit Variables(const Environment& environment) : environment_(environment) {}

  // A variable that is empty counts as absent, as OpenTelemetry has it.
  std::string Text(const std::string& name) const {
    const char* value = environment_(name.c_str());
    return value == nullptr ? "" : std::string(absl::StripAsciiWhitespace(value));
  }
  struct Found {
    std::string name, value;
  };
  Found OfExporter(const std::string& name) const {
    const std::string own = "OTEL_EXPORTER_OTLP_TRACES_" + name, common = "OTEL_EXPORTER_OTLP_" + name;
    if (std::string value = Text(own); !value.empty()) return {own, value};
    return {common, Text(common)};
  }
  template <typename Choice>
  static absl::StatusOr<Choice> Chosen(const Found& found, const std::map<std::string, Choice>& choices,
                                       Choice otherwise) {
    if (found.value.empty()) return otherwise;
    const auto chosen = choices.find(absl::AsciiStrToLower(found.value));
    if (chosen != choices.end()) return chosen->second;
    std::string names;
    for (const auto& [name, choice] : choices) absl::StrAppend(&names, names.empty() ? "" : ", ", name);
    return InvalidArgument("UNKNOWN_VALUE", found.name, found.value, "must be one of " + names);
  }
  absl::StatusOr<int64_t> Integer(const Found& found, int64_t least, int64_t most, int64_t otherwise) const {
    if (found.value.empty()) return otherwise;
    int64_t number = 0;
    if (absl::SimpleAtoi(found.value, &number) && number >= least && number <= most) return number;
    return InvalidArgument("OUT_OF_RANGE", found.name, found.value,
                           absl::StrCat("must be an integer from ", least, " to ", most));
  }
  Found Named(const std::string& name) const { return {name, Text(name)}; }

 private:
  const Environment& environment_;
};

absl::StatusOr<std::string> ReadPem(const Variables::Found& file) {
  if (file.value.empty()) return "";
  const absl::StatusOr<std::string> text = ReadFile(file.value, kMostPemBytes);
  if (text.ok() && absl::StrContains(*text, "-----BEGIN ")) return *text;
  return InvalidArgument("MALFORMED", file.name, file.value, "must be the path of a PEM file that can be read");
}

// Bytes as in a URL: %2C is a comma. nullopt if they are malformed.
std::optional<std::string> Unescaped(std::string_view text) {
  std::string out;
  for (size_t n = 0; n < text.size(); ++n) {
    if (text[n] != '%') {
      out += text[n];
      continue;
    }
    int byte = 0;
    const std::string digits(text.substr(n + 1, 2));
    if (digits.size() != 2 || !absl::ascii_isxdigit(static_cast<unsigned char>(digits[0])) ||
        !absl::ascii_isxdigit(static_cast<unsigned char>(digits[1])) || !absl::SimpleHexAtoi(digits, &byte)) {
      return std::nullopt;
    }
    out += static_cast<char>(byte);
    n += 2;
  }
  return out;
}

// "key1=value1,key2=value2", with values as in a URL.
absl::StatusOr<TraceSettings::Pairs> ReadPairs(const Variables::Found& found, bool are_headers) {
  const auto malformed = [&] {
    return InvalidArgument("MALFORMED", found.name, are_headers ? "" : found.value,  // headers may be secrets
                           are_headers ? "must be NAME=VALUE,... with names in lower case and printable ASCII"
                                       : "must be KEY=VALUE,..., with %XX for other bytes than printable ASCII");
  };
  if (found.value.size() > kMostValueBytes) return malformed();
  TraceSettings::Pairs pairs;
  for (const auto& part : absl::StrSplit(found.value, ',', absl::SkipWhitespace())) {
    const std::string text(absl::StripAsciiWhitespace(part));
    const size_t equals = text.find('=');
    if (equals == std::string::npos || equals == 0) return malformed();
    std::string key(absl::StripTrailingAsciiWhitespace(text.substr(0, equals)));
    const auto value = Unescaped(std::string(absl::StripAsciiWhitespace(text.substr(equals + 1))));
    if (!value) return malformed();
    if (are_headers) {
      absl::AsciiStrToLower(&key);
      const bool is_key = std::all_of(key.begin(), key.end(), [](unsigned char c) {
        return absl::ascii_isalnum(c) || c == '-' || c == '_' || c == '.';
      });
      const bool is_printable = std::all_of(value->begin(), value->end(), [](char c) { return c >= ' ' && c <= '~'; });
      if (!is_key || !is_printable) return malformed();
    }
    std::erase_if(pairs, [&key](const auto& earlier) { return earlier.first == key; });
    pairs.emplace_back(std::move(key), *value);
  }
  return pairs;
}

bool IsHostAndPort(std::string_view text) {
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos) return false;
  const std::string_view host = text.substr(0, colon), port = text.substr(colon + 1);
  int number = 0;
  const bool is_port = port.size() <= 5 && std::all_of(port.begin(), port.end(), absl::ascii_isdigit) &&
                       absl::SimpleAtoi(std::string(port), &number) && number > 0 && number < 65536;
  const bool is_v6 = host.starts_with('[') && host.ends_with(']');
  const bool is_plain = std::all_of(host.begin(), host.end(), [is_v6](unsigned char c) {
    return absl::ascii_isalnum(c) || c == '.' || c == '-' || c == '_' || (is_v6 && (c == ':' || c == '[' || c == ']'));
  });
  return is_port && is_plain && !host.empty();
}

// "http://host:port", "https://host:port/", or "host:port" with or without TLS (OTEL_EXPORTER_OTLP_INSECURE).
absl::Status ReadEndpoint(const Variables::Found& found, bool is_insecure, TraceSettings* settings) {
  std::string_view rest = found.value;
  const auto take = [&rest](std::string_view prefix) {
    if (!rest.starts_with(prefix)) return false;
    rest.remove_prefix(prefix.size());
    return true;
  };
  constexpr std::string_view kUnix = "unix:";
  const bool is_unix = rest.starts_with(kUnix);
  settings->is_secure = !is_unix && !is_insecure;
  if (take("http://")) {
    settings->is_secure = false;
  } else if (take("https://")) {
    settings->is_secure = true;
  }
  if (!is_unix && rest.ends_with('/')) rest.remove_suffix(1);
  std::string target(rest);
  if (is_unix ? rest.size() > kUnix.size() : IsHostAndPort(target)) {
    settings->target = std::move(target);
    return absl::OkStatus();
  }
  if (found.value.starts_with("https://") && IsHostAndPort(target + ":443")) {
    settings->target = target + ":443";
    return absl::OkStatus();
  }
  // It may have a password.
  return InvalidArgument("MALFORMED", found.name, absl::StrContains(found.value, '@') ? "" : found.value,
                         "must be http://HOST:PORT, https://HOST:PORT or HOST:PORT of a collector's gRPC port (4317)");
}

absl::StatusOr<Sampler> ReadSampler(const Variables& variables) {
  struct Kind {
    bool is_parent_based;
    std::optional<double> ratio;  // absent: that of OTEL_TRACES_SAMPLER_ARG
  };
  const std::map<std::string, Kind> kinds = {{"always_on", {false, 1}},
                                             {"always_off", {false, 0}},
                                             {"traceidratio", {false, std::nullopt}},
                                             {"parentbased_always_on", {true, 1}},
                                             {"parentbased_always_off", {true, 0}},
                                             {"parentbased_traceidratio", {true, std::nullopt}}};
  POSENC_ASSIGN_OR_RETURN(const Kind kind,
                          Variables::Chosen(variables.Named("OTEL_TRACES_SAMPLER"), kinds, Kind{true, 1}));
  Sampler sampler{.is_parent_based = kind.is_parent_based, .ratio = kind.ratio.value_or(1)};
  const Variables::Found argument = variables.Named("OTEL_TRACES_SAMPLER_ARG");
  if (kind.ratio || argument.value.empty()) return sampler;
  const bool is_number = absl::SimpleAtod(argument.value, &sampler.ratio);
  if (is_number && sampler.ratio >= 0 && sampler.ratio <= 1) return sampler;
  return InvalidArgument("OUT_OF_RANGE", argument.name, argument.value, "must be a number from 0 to 1");
}

absl::StatusOr<TraceSettings::Pairs> ReadResource(const Variables& variables) {
  POSENC_ASSIGN_OR_RETURN(TraceSettings::Pairs given,
                          ReadPairs(variables.Named("OTEL_RESOURCE_ATTRIBUTES"), /*are_headers=*/false));
  char host[HOST_NAME_MAX + 1] = "";
  gethostname(host, sizeof(host));
  const std::string name = variables.Text("OTEL_SERVICE_NAME");
  if (!name.empty()) std::erase_if(given, [](const auto& pair) { return pair.first == "service.name"; });
  const TraceSettings::Pairs own = {{"service.name", name.empty() ? "posenc-server" : name},
                                    {"service.version", kVersion},
                                    {"service.instance.id", absl::StrCat(host, "-", getpid())},
                                    {"host.name", host}};
  for (const auto& pair : own) {
    const bool is_given =
        std::any_of(given.begin(), given.end(), [&](const auto& one) { return one.first == pair.first; });
    if (!is_given) given.push_back(pair);
  }
  return given;
}

}  // namespace

absl::StatusOr<std::optional<TraceSettings>> ReadTraceSettings(const std::string& endpoint,
                                                               const Environment& environment) {
  const Variables variables(environment);
  const std::map<std::string, bool> booleans = {{"true", true}, {"false", false}};
  Variables::Found where = variables.OfExporter("ENDPOINT");
  if (!endpoint.empty()) where = {kFlag, endpoint};
  if (where.value.empty()) return std::nullopt;
  POSENC_ASSIGN_OR_RETURN(const bool is_disabled,
                          Variables::Chosen(variables.Named("OTEL_SDK_DISABLED"), booleans, false));
  POSENC_ASSIGN_OR_RETURN(const bool exports, Variables::Chosen<bool>(variables.Named("OTEL_TRACES_EXPORTER"),
                                                                      {{"otlp", true}, {"none", false}}, true));
  if (is_disabled || !exports) return std::nullopt;

  TraceSettings settings;
  POSENC_RETURN_IF_ERROR(Variables::Chosen<bool>(variables.OfExporter("PROTOCOL"), {{"grpc", true}}, true).status());
  POSENC_ASSIGN_OR_RETURN(const bool is_insecure, Variables::Chosen(variables.OfExporter("INSECURE"), booleans, false));
  POSENC_RETURN_IF_ERROR(ReadEndpoint(where, is_insecure, &settings));
  POSENC_ASSIGN_OR_RETURN(settings.root_certificates, ReadPem(variables.OfExporter("CERTIFICATE")));
  POSENC_ASSIGN_OR_RETURN(settings.client_key, ReadPem(variables.OfExporter("CLIENT_KEY")));
  POSENC_ASSIGN_OR_RETURN(settings.client_certificate, ReadPem(variables.OfExporter("CLIENT_CERTIFICATE")));
  POSENC_ASSIGN_OR_RETURN(settings.headers, ReadPairs(variables.OfExporter("HEADERS"), /*are_headers=*/true));
  POSENC_ASSIGN_OR_RETURN(settings.is_compressed, Variables::Chosen<bool>(variables.OfExporter("COMPRESSION"),
                                                                          {{"gzip", true}, {"none", false}}, false));
  POSENC_ASSIGN_OR_RETURN(settings.sampler, ReadSampler(variables));
  POSENC_ASSIGN_OR_RETURN(settings.resource, ReadResource(variables));
  constexpr int64_t kHour = 3'600'000;
  POSENC_ASSIGN_OR_RETURN(const int64_t timeout,
                          variables.Integer(variables.OfExporter("TIMEOUT"), 1, kHour, settings.timeout.count()));
  POSENC_ASSIGN_OR_RETURN(const int64_t most,
                          variables.Integer(variables.Named("OTEL_BSP_EXPORT_TIMEOUT"), 1, kHour, kHour));
  settings.timeout = std::chrono::milliseconds(std::min(timeout, most));
  POSENC_ASSIGN_OR_RETURN(const int64_t delay, variables.Integer(variables.Named("OTEL_BSP_SCHEDULE_DELAY"), 1, kHour,
                                                                 settings.schedule_delay.count()));
  settings.schedule_delay = std::chrono::milliseconds(delay);
  POSENC_ASSIGN_OR_RETURN(settings.max_queue_spans, variables.Integer(variables.Named("OTEL_BSP_MAX_QUEUE_SIZE"), 1,
                                                                      kMostSpans, settings.max_queue_spans));
  const auto batch = static_cast<int64_t>(std::min(settings.max_batch_spans, settings.max_queue_spans));
  POSENC_ASSIGN_OR_RETURN(settings.max_batch_spans,
                          variables.Integer(variables.Named("OTEL_BSP_MAX_EXPORT_BATCH_SIZE"), 1,
                                            static_cast<int64_t>(settings.max_queue_spans), batch));
  return settings;
}

std::vector<std::string> UnusedTraceVariables(const char* const* environment) {
  std::vector<std::string> unused;
  for (; *environment != nullptr; ++environment) {
    const std::string_view variable = *environment;
    const size_t equals = variable.find('=');
    const std::string name(variable.substr(0, equals));
    if (!name.starts_with("OTEL_") || equals + 1 == variable.size()) continue;
    const bool is_of_exporter = std::any_of(kOfExporter.begin(), kOfExporter.end(), [&](const std::string& end) {
      return name == "OTEL_EXPORTER_OTLP_" + end || name == "OTEL_EXPORTER_OTLP_TRACES_" + end;
    });
    if (!is_of_exporter && std::find(kOthers.begin(), kOthers.end(), name) == kOthers.end()) unused.push_back(name);
  }
  return unused;
}

}  // namespace posenc::server
