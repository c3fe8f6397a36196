#include "server/trace/trace_settings.h"

#include <unistd.h>

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "posenc/base/status.h"
#include "posenc/base/version.h"
#include "tests/tools/files/temporary_file.h"

namespace posenc::server::trace_settings_test {
namespace {

using std::chrono::milliseconds;
using testing::Contains;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Not;
using testing::Pair;

using Variables = std::map<std::string, std::string>;
using Read = absl::StatusOr<std::optional<TraceSettings>>;

constexpr char kCollector[] = "http://collector:4317";
constexpr char kPem[] = "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";

Read ReadWithFlag(const std::string& endpoint, const Variables& variables) {
  return ReadTraceSettings(endpoint, [&variables](const char* name) -> const char* {
    const auto found = variables.find(name);
    return found == variables.end() ? nullptr : found->second.c_str();
  });
}

// The settings by these variables, for a collector that the flag names.
TraceSettings SettingsBy(const Variables& variables) {
  const Read read = ReadWithFlag(kCollector, variables);
  if (read.ok() && *read) return **read;
  ADD_FAILURE() << (read.ok() ? "traces nothing" : read.status().ToString());
  return {};
}

absl::Status ErrorBy(const Variables& variables) { return ReadWithFlag(kCollector, variables).status(); }

bool Traces(const std::string& endpoint, const Variables& variables) {
  const Read read = ReadWithFlag(endpoint, variables);
  EXPECT_TRUE(read.ok()) << read.status();
  return read.ok() && read->has_value();
}

std::optional<std::string> ResourceOf(const TraceSettings& settings, const std::string& key) {
  std::optional<std::string> found;
  for (const auto& [name, value] : settings.resource) {
    if (name != key) continue;
    EXPECT_FALSE(found) << key << " comes twice";
    found = value;
  }
  return found;
}

TEST(TraceSettings, NothingIsTracedUnlessAnEndpointIsGiven) {
  EXPECT_FALSE(Traces("", {}));
  EXPECT_FALSE(Traces("", {{"OTEL_SERVICE_NAME", "a"}, {"OTEL_TRACES_SAMPLER", "always_on"}}));
  EXPECT_FALSE(Traces("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", ""}, {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", " "}}));
  EXPECT_TRUE(Traces(kCollector, {}));
  EXPECT_TRUE(Traces("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", kCollector}}));
  EXPECT_TRUE(Traces("", {{"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", kCollector}}));
}

TEST(TraceSettings, AVariableMayTurnTracesOff) {
  EXPECT_FALSE(Traces(kCollector, {{"OTEL_SDK_DISABLED", "true"}}));
  EXPECT_FALSE(Traces(kCollector, {{"OTEL_SDK_DISABLED", "TRUE"}}));
  EXPECT_TRUE(Traces(kCollector, {{"OTEL_SDK_DISABLED", "false"}}));
  EXPECT_FALSE(Traces(kCollector, {{"OTEL_TRACES_EXPORTER", "none"}}));
  EXPECT_TRUE(Traces(kCollector, {{"OTEL_TRACES_EXPORTER", "otlp"}}));
}

// The numbers are the defaults of OpenTelemetry's specification (Environment Variable Specification, Batch Span
// Processor; OTLP Exporter Configuration).
TEST(TraceSettings, Defaults) {
  const TraceSettings settings = SettingsBy({});
  EXPECT_EQ(settings.target, "collector:4317");
  EXPECT_FALSE(settings.is_secure);
  EXPECT_EQ(settings.root_certificates + settings.client_key + settings.client_certificate, "");
  EXPECT_THAT(settings.headers, IsEmpty());
  EXPECT_EQ(settings.timeout, milliseconds(10'000));
  EXPECT_FALSE(settings.is_compressed);
  EXPECT_TRUE(settings.sampler.is_parent_based);
  EXPECT_EQ(settings.sampler.ratio, 1);
  EXPECT_EQ(settings.schedule_delay, milliseconds(5'000));
  EXPECT_EQ(settings.max_queue_spans, 2048u);
  EXPECT_EQ(settings.max_batch_spans, 512u);
}

TEST(TraceSettings, TheFlagWinsOverTheVariables) {
  const Variables others = {{"OTEL_EXPORTER_OTLP_ENDPOINT", "http://general:1"},
                            {"OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "malformed"}};
  EXPECT_EQ(SettingsBy(others).target, "collector:4317");
}

TEST(TraceSettings, FormsOfEndpoints) {
  struct Form {
    std::string endpoint, target;
    bool is_secure, is_secure_unless_told;  // the second with OTEL_EXPORTER_OTLP_INSECURE=true
  };
  for (const Form& form : {Form{"http://a:4317", "a:4317", false, false},
                           {"http://a.example:65535/", "a.example:65535", false, false},
                           {"https://a:4317", "a:4317", true, true},
                           {"https://a:1/", "a:1", true, true},
                           {"a:4317", "a:4317", true, false},
                           {" 10.0.0.1:4317 ", "10.0.0.1:4317", true, false},
                           {"[::1]:4317", "[::1]:4317", true, false},
                           {"http://[::1]:4317", "[::1]:4317", false, false},
                           {"unix:/run/a/", "unix:/run/a/", false, false},
                           {"unix:///run/a", "unix:///run/a", false, false}}) {
    for (const bool is_told : {false, true}) {
      const Read read = ReadWithFlag("", {{"OTEL_EXPORTER_OTLP_ENDPOINT", form.endpoint},
                                          {"OTEL_EXPORTER_OTLP_INSECURE", is_told ? "true" : "false"}});
      ASSERT_TRUE(read.ok()) << read.status();
      EXPECT_EQ((*read)->target, form.target) << form.endpoint;
      EXPECT_EQ((*read)->is_secure, is_told ? form.is_secure_unless_told : form.is_secure) << form.endpoint;
    }
  }
}

TEST(TraceSettings, WrongEndpointsNameWhereTheyAreFrom) {
  for (const std::string endpoint : {"a", "http://a", "http://:4317", ":4317", "a:", "a:0", "a:65536", "a:-1", "a:grpc",
                                     "a:4317x", "http://", "http://a:4317/v1/traces", "http://a:4317//", "ftp://a:4317",
                                     "a b:4317", "a:4317?b", "a\x01:4317", "\xc3\xa4:4317", "http://unix:/run/a"}) {
    for (const std::string name :
         {"--otlp-endpoint", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"}) {
      const absl::Status error = name == "--otlp-endpoint" ? ReadWithFlag(endpoint, {}).status()
                                                           : ReadWithFlag("", {{name, endpoint}}).status();
      EXPECT_TRUE(absl::IsInvalidArgument(error)) << endpoint << ": " << error;
      EXPECT_EQ(DetailsOf(error).field, name) << endpoint;
      EXPECT_THAT(std::string(error.message()), HasSubstr(Quote(endpoint)));
      EXPECT_THAT(std::string(error.message()), HasSubstr("http://HOST:PORT"));
    }
  }
}

TEST(TraceSettings, EachVariableSetsItsOwn) {
  const std::string roots = WriteTemporary("roots", std::string(kPem) + "1"),
                    key = WriteTemporary("key", std::string(kPem) + "2"),
                    certificate = WriteTemporary("certificate", std::string(kPem) + "3");
  const TraceSettings settings = SettingsBy({{"OTEL_EXPORTER_OTLP_CERTIFICATE", roots},
                                             {"OTEL_EXPORTER_OTLP_CLIENT_KEY", key},
                                             {"OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE", certificate},
                                             {"OTEL_EXPORTER_OTLP_HEADERS", "a=b"},
                                             {"OTEL_EXPORTER_OTLP_TIMEOUT", "2500"},
                                             {"OTEL_EXPORTER_OTLP_COMPRESSION", "gzip"},
                                             {"OTEL_EXPORTER_OTLP_PROTOCOL", "grpc"},
                                             {"OTEL_BSP_SCHEDULE_DELAY", "100"},
                                             {"OTEL_BSP_MAX_QUEUE_SIZE", "4000"},
                                             {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", " 3000 "},
                                             {"OTEL_BSP_EXPORT_TIMEOUT", "30000"}});
  EXPECT_EQ(settings.root_certificates, std::string(kPem) + "1");
  EXPECT_EQ(settings.client_key, std::string(kPem) + "2");
  EXPECT_EQ(settings.client_certificate, std::string(kPem) + "3");
  EXPECT_THAT(settings.headers, ElementsAre(Pair("a", "b")));
  EXPECT_EQ(settings.timeout, milliseconds(2500)) << "the shorter one of two";
  EXPECT_TRUE(settings.is_compressed);
  EXPECT_EQ(settings.schedule_delay, milliseconds(100));
  EXPECT_EQ(settings.max_queue_spans, 4000u);
  EXPECT_EQ(settings.max_batch_spans, 3000u);
  EXPECT_EQ(SettingsBy({{"OTEL_BSP_EXPORT_TIMEOUT", "1500"}}).timeout, milliseconds(1500));
  EXPECT_FALSE(SettingsBy({{"OTEL_EXPORTER_OTLP_COMPRESSION", "none"}}).is_compressed);
}

TEST(TraceSettings, AVariableOfTracesWinsOverTheGeneralOne) {
  const std::string general_file = WriteTemporary("general", std::string(kPem) + "general"),
                    own_file = WriteTemporary("own", std::string(kPem) + "own");
  struct Variable {
    std::string end, general, own;
    std::string (*read)(const TraceSettings&);
  };
  const std::vector<Variable> variables = {
      {"ENDPOINT", "http://general:1", "http://own:2", [](const TraceSettings& read) { return read.target; }},
      {"CERTIFICATE", general_file, own_file, [](const TraceSettings& read) { return read.root_certificates; }},
      {"CLIENT_KEY", general_file, own_file, [](const TraceSettings& read) { return read.client_key; }},
      {"CLIENT_CERTIFICATE", general_file, own_file, [](const TraceSettings& read) { return read.client_certificate; }},
      {"HEADERS", "a=general", "a=own", [](const TraceSettings& read) { return read.headers.at(0).second; }},
      {"TIMEOUT", "1000", "2000", [](const TraceSettings& read) { return std::to_string(read.timeout.count()); }},
      {"COMPRESSION", "none", "gzip", [](const TraceSettings& read) { return std::to_string(read.is_compressed); }},
      {"INSECURE", "true", "false", [](const TraceSettings& read) { return std::to_string(read.is_secure); }},
  };
  for (const Variable& one : variables) {
    const std::string general = "OTEL_EXPORTER_OTLP_" + one.end, own = "OTEL_EXPORTER_OTLP_TRACES_" + one.end;
    const auto with = [&](Variables set) {
      set.emplace("OTEL_EXPORTER_OTLP_ENDPOINT", "collector:4317");
      const Read read = ReadWithFlag("", set);
      EXPECT_TRUE(read.ok() && *read) << read.status();
      return read.ok() && *read ? one.read(**read) : "";
    };
    const std::string by_general = with({{general, one.general}}), by_own = with({{own, one.own}});
    EXPECT_NE(by_general, by_own) << one.end;
    EXPECT_EQ(with({{general, one.general}, {own, one.own}}), by_own) << one.end;
    EXPECT_EQ(with({{general, one.general}, {own, ""}}), by_general) << one.end << ": an empty one is absent";
    EXPECT_EQ(with({{general, "\x01"}, {own, one.own}}), by_own) << one.end << ": the general one is not read";
  }
  EXPECT_TRUE(
      ErrorBy({{"OTEL_EXPORTER_OTLP_PROTOCOL", "http/json"}, {"OTEL_EXPORTER_OTLP_TRACES_PROTOCOL", "grpc"}}).ok());
}

TEST(TraceSettings, EachWrongValueNamesItsVariable) {
  const std::string no_pem = WriteTemporary("no_pem", "AAAA");
  const std::vector<std::pair<std::string, std::string>> of_exporter = {
      {"INSECURE", "yes"},        {"INSECURE", "1"},          {"PROTOCOL", "http/protobuf"},
      {"PROTOCOL", "http/json"},  {"CERTIFICATE", "/absent"}, {"CERTIFICATE", no_pem},
      {"CLIENT_KEY", "/absent"},  {"CLIENT_KEY", no_pem},     {"COMPRESSION", "zstd"},
      {"COMPRESSION", "deflate"}, {"TIMEOUT", "0"},           {"TIMEOUT", "-1"},
      {"TIMEOUT", "1.5"},         {"TIMEOUT", "10s"},         {"TIMEOUT", "3600001"},
      {"HEADERS", "a"},           {"HEADERS", "=b"},          {"CLIENT_CERTIFICATE", no_pem}};
  std::vector<std::pair<std::string, std::string>> wrong = {{"OTEL_SDK_DISABLED", "1"},
                                                            {"OTEL_TRACES_EXPORTER", "zipkin"},
                                                            {"OTEL_TRACES_EXPORTER", "otlp,console"},
                                                            {"OTEL_TRACES_SAMPLER", "jaeger_remote"},
                                                            {"OTEL_TRACES_SAMPLER", "xray"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "=b"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a=b,c"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a=%"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a=%4"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a=%4g"},
                                                            {"OTEL_RESOURCE_ATTRIBUTES", "a=%+1"}};
  for (const auto& [end, value] : of_exporter) {
    wrong.emplace_back("OTEL_EXPORTER_OTLP_" + end, value);
    wrong.emplace_back("OTEL_EXPORTER_OTLP_TRACES_" + end, value);
  }
  for (const std::string end : {"SCHEDULE_DELAY", "MAX_QUEUE_SIZE", "MAX_EXPORT_BATCH_SIZE", "EXPORT_TIMEOUT"}) {
    for (const std::string value : {"0", "-1", "x", "1.5", "99999999999999999999"}) {
      wrong.emplace_back("OTEL_BSP_" + end, value);
    }
  }
  for (const auto& [name, value] : wrong) {
    const absl::Status error = ErrorBy({{name, value}});
    EXPECT_TRUE(absl::IsInvalidArgument(error)) << name << "=" << value << ": " << error;
    EXPECT_EQ(DetailsOf(error).field, name) << value;
    EXPECT_THAT(std::string(error.message()), testing::StartsWith(name + ": "));
    if (name.find("HEADERS") == std::string::npos) {
      EXPECT_THAT(std::string(error.message()), HasSubstr(Quote(value))) << name;
    }
    EXPECT_THAT(std::string(error.message()), HasSubstr("must be ")) << name;
  }
}

TEST(TraceSettings, ASpaceEndsNoEscapedByte) {
  const absl::Status error = ErrorBy({{"OTEL_RESOURCE_ATTRIBUTES", "a=%4 b"}});
  EXPECT_EQ(DetailsOf(error).field, "OTEL_RESOURCE_ATTRIBUTES") << error;
}

TEST(TraceSettings, ADirectoryIsNoCertificate) {
  const absl::Status error = ErrorBy({{"OTEL_EXPORTER_OTLP_CERTIFICATE", testing::TempDir()}});
  EXPECT_EQ(DetailsOf(error).field, "OTEL_EXPORTER_OTLP_CERTIFICATE") << error;
}

TEST(TraceSettings, ABatchFitsTheQueue) {
  EXPECT_EQ(SettingsBy({{"OTEL_BSP_MAX_QUEUE_SIZE", "100"}}).max_batch_spans, 100u) << "the default would not fit";
  EXPECT_EQ(SettingsBy({{"OTEL_BSP_MAX_QUEUE_SIZE", "65536"}}).max_queue_spans, 65536u);
  const absl::Status error = ErrorBy({{"OTEL_BSP_MAX_QUEUE_SIZE", "100"}, {"OTEL_BSP_MAX_EXPORT_BATCH_SIZE", "101"}});
  EXPECT_EQ(DetailsOf(error).field, "OTEL_BSP_MAX_EXPORT_BATCH_SIZE") << error;
  EXPECT_EQ(DetailsOf(error).limit, "must be an integer from 1 to 100");
  EXPECT_EQ(DetailsOf(ErrorBy({{"OTEL_BSP_MAX_QUEUE_SIZE", "65537"}})).field, "OTEL_BSP_MAX_QUEUE_SIZE");
}

// The names of OpenTelemetry's specification.
TEST(TraceSettings, Samplers) {
  struct Kind {
    std::string name;
    bool is_parent_based;
    double ratio, ratio_by_argument;  // the second with OTEL_TRACES_SAMPLER_ARG=0.25
  };
  for (const Kind& kind : {Kind{"always_on", false, 1, 1},
                           {"always_off", false, 0, 0},
                           {"traceidratio", false, 1, 0.25},
                           {"parentbased_always_on", true, 1, 1},
                           {"parentbased_always_off", true, 0, 0},
                           {"parentbased_traceidratio", true, 1, 0.25},
                           {"TraceIdRatio", false, 1, 0.25},
                           {"", true, 1, 1}}) {
    const Sampler alone = SettingsBy({{"OTEL_TRACES_SAMPLER", kind.name}}).sampler;
    EXPECT_EQ(alone.is_parent_based, kind.is_parent_based) << kind.name;
    EXPECT_EQ(alone.ratio, kind.ratio) << kind.name;
    const Sampler by_argument =
        SettingsBy({{"OTEL_TRACES_SAMPLER", kind.name}, {"OTEL_TRACES_SAMPLER_ARG", "0.25"}}).sampler;
    EXPECT_EQ(by_argument.is_parent_based, kind.is_parent_based) << kind.name;
    EXPECT_EQ(by_argument.ratio, kind.ratio_by_argument) << kind.name;
  }
}

TEST(TraceSettings, RatiosAreFromZeroToOne) {
  const auto with = [](const std::string& ratio) {
    return Variables{{"OTEL_TRACES_SAMPLER", "parentbased_traceidratio"}, {"OTEL_TRACES_SAMPLER_ARG", ratio}};
  };
  for (const auto& [text, ratio] : {std::pair("0", 0.0), {"1", 1.0}, {"1e-3", 0.001}, {" 0.5 ", 0.5}}) {
    EXPECT_EQ(SettingsBy(with(text)).sampler.ratio, ratio);
  }
  for (const std::string ratio : {"-0.1", "1.1", "nan", "inf", "x", "0,5", "50%"}) {
    const absl::Status error = ErrorBy(with(ratio));
    EXPECT_EQ(DetailsOf(error).field, "OTEL_TRACES_SAMPLER_ARG") << ratio << ": " << error;
    EXPECT_THAT(std::string(error.message()), HasSubstr(ratio));
  }
}

TEST(TraceSettings, HeadersAreDecoded) {
  const auto headers = [](const std::string& text) {
    return SettingsBy({{"OTEL_EXPORTER_OTLP_HEADERS", text}}).headers;
  };
  EXPECT_THAT(headers("Authorization=Bearer%20a%3D%2C%25, x-tenant = t=1 ,,"),
              ElementsAre(Pair("authorization", "Bearer a=,%"), Pair("x-tenant", "t=1")));
  EXPECT_THAT(headers("a_b.c-1=%7e%7E"), ElementsAre(Pair("a_b.c-1", "~~")));
  EXPECT_THAT(headers("a="), ElementsAre(Pair("a", "")));
  EXPECT_THAT(headers(" , "), IsEmpty());
}

TEST(TraceSettings, NoErrorHasASecretOfTheHeaders) {
  for (const std::string& headers : std::vector<std::string>{
           "hunter2", "authorization=hunter2,=b", "authorization=hunter2,b", "=hunter2", "a b=hunter2", "a:b=hunter2",
           "\xc3\xa4=hunter2", "hunter2/=a", "a=hunter2%", "a=hunter2%0a", "a=hunter2%zz", "a=hunter2%7f",
           "a=hunter2\x01", "a=hunter2\xc3\xa4", "a=hunter2" + std::string(65536, 'x')}) {
    for (const std::string name : {"OTEL_EXPORTER_OTLP_HEADERS", "OTEL_EXPORTER_OTLP_TRACES_HEADERS"}) {
      const absl::Status error = ErrorBy({{name, headers}});
      EXPECT_TRUE(absl::IsInvalidArgument(error)) << headers;
      EXPECT_EQ(DetailsOf(error).field, name) << headers;
      EXPECT_THAT(error.ToString(absl::StatusToStringMode::kWithEverything), Not(HasSubstr("hunter2")));
    }
  }
}

TEST(TraceSettings, TheResourceSaysWhatSendsTheSpans) {
  const TraceSettings settings = SettingsBy({});
  EXPECT_EQ(settings.resource.size(), 4u);
  EXPECT_EQ(ResourceOf(settings, "service.name"), "posenc-server");
  EXPECT_EQ(ResourceOf(settings, "service.version"), kVersion);
  const auto host = ResourceOf(settings, "host.name");
  ASSERT_TRUE(host);
  EXPECT_NE(*host, "");
  EXPECT_EQ(ResourceOf(settings, "service.instance.id"), *host + "-" + std::to_string(getpid()));
}

TEST(TraceSettings, AttributesOfTheResourceMayBeGiven) {
  const TraceSettings settings = SettingsBy(
      {{"OTEL_RESOURCE_ATTRIBUTES", "deployment.environment.name=a%2Cb, service.name=c,host.name=d ,e=%C3%A4"}});
  EXPECT_EQ(settings.resource.size(), 6u);
  EXPECT_EQ(ResourceOf(settings, "deployment.environment.name"), "a,b");
  EXPECT_EQ(ResourceOf(settings, "service.name"), "c");
  EXPECT_EQ(ResourceOf(settings, "host.name"), "d");
  EXPECT_EQ(ResourceOf(settings, "e"), "\xc3\xa4");
  EXPECT_EQ(ResourceOf(settings, "service.version"), kVersion);
  EXPECT_TRUE(ResourceOf(settings, "service.instance.id"));
}

TEST(TraceSettings, TheNameOfTheServiceWinsOverItsAttribute) {
  const TraceSettings settings =
      SettingsBy({{"OTEL_SERVICE_NAME", "a b=%20"}, {"OTEL_RESOURCE_ATTRIBUTES", "service.name=c,service.name=d"}});
  EXPECT_EQ(ResourceOf(settings, "service.name"), "a b=%20") << "is not decoded";
}

TEST(TraceSettings, UnusedVariablesAreListed) {
  const char* const environment[] = {"PATH=/bin",
                                     "OTEL_EXPORTER_OTLP_METRICS_ENDPOINT=http://a:1",
                                     "OTEL_EXPORTER_OTLP_TRACES_HEADERS=a=b",
                                     "OTEL_PROPAGATORS=b3=c",
                                     "OTEL_LOG_LEVEL=",
                                     "OTEL_BSP_MAX_QUEUE_SIZES=1",
                                     "OTEL_SERVICE_NAME=a",
                                     "OTEL_EXPORTER_OTLP_=a",
                                     "MY_OTEL_PROPAGATORS=b3",
                                     "otel_propagators=b3",
                                     nullptr};
  EXPECT_THAT(UnusedTraceVariables(environment), ElementsAre("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_PROPAGATORS",
                                                             "OTEL_BSP_MAX_QUEUE_SIZES", "OTEL_EXPORTER_OTLP_"));
  const char* const none[] = {nullptr};
  EXPECT_THAT(UnusedTraceVariables(none), IsEmpty());
}

// Whatever is asked for is used, and nothing else is.
TEST(TraceSettings, UsedVariablesAreThoseThatAreRead) {
  std::map<std::string, int> asked;
  const Read read = ReadTraceSettings(kCollector, [&asked](const char* name) -> const char* {
    ++asked[name];
    return name == std::string("OTEL_TRACES_SAMPLER") ? "traceidratio" : nullptr;
  });
  ASSERT_TRUE(read.ok()) << read.status();
  EXPECT_EQ(asked.size(), 2 * 9 + 10u);
  EXPECT_THAT(asked, Contains(Pair("OTEL_TRACES_SAMPLER_ARG", testing::Gt(0))));
  for (const auto& [name, times] : asked) {
    const std::string set = name + "=a", misspelt = name + "X=a";
    const char* const environment[] = {set.c_str(), misspelt.c_str(), nullptr};
    EXPECT_THAT(UnusedTraceVariables(environment), ElementsAre(name + "X"));
  }
}

}  // namespace
}  // namespace posenc::server::trace_settings_test
