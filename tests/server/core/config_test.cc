#include "server/core/config.h"

#include <cstdlib>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using testing::Contains;
using testing::HasSubstr;
using testing::Pair;

constexpr Machine kMachine = {6, int64_t{64} << 30};

ParsedArguments ParseBy(ArgumentParser* parser, std::vector<const char*> arguments, const Machine& machine = kMachine) {
  arguments.insert(arguments.begin(), "posenc-server");
  return parser->Parse(static_cast<int>(arguments.size()), arguments.data(), machine);
}
ParsedArguments Parse(std::vector<const char*> arguments, const Machine& machine = kMachine) {
  ArgumentParser parser;
  return ParseBy(&parser, std::move(arguments), machine);
}

class Environment {
 public:
  Environment(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Environment() { unsetenv(name_); }

 private:
  const char* name_;
};

TEST(Config, Defaults) {
  const ParsedArguments parsed = Parse({});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_THAT(parsed.config->listen, testing::ElementsAre("127.0.0.1:50051"))
      << "no one but this machine, unless asked";
  EXPECT_EQ(parsed.config->threads, 6);
  EXPECT_EQ(parsed.config->max_in_flight_bytes, int64_t{1} << 30);
  EXPECT_EQ(parsed.config->memory_quota_bytes, int64_t{3} << 30);
  EXPECT_EQ(parsed.config->limits.max_request_bytes, Limits().max_request_bytes);
}

TEST(Config, FewProcessorsHaveOneThreadThatReceives) {
  for (const auto& [cpus, threads] : {std::pair(1, 1), {2, 1}, {3, 1}, {4, 2}, {9, 4}, {128, 16}}) {
    EXPECT_EQ(Parse({}, {cpus, 0}).config->io_threads, threads) << cpus;
    EXPECT_EQ(Parse({"--io-threads", "7"}, {cpus, 0}).config->io_threads, 7);
  }
}

TEST(Config, APeerMayHaveMoreConnectionsIfMoreThreadsReceive) {
  const auto most = [](std::initializer_list<const char*> flags, int cpus) {
    return Parse(flags, {cpus, 0, 1 << 20}).config->max_connections_per_peer;
  };
  EXPECT_EQ(most({}, 2), 64);
  EXPECT_EQ(most({}, 8), 256);
  EXPECT_EQ(most({}, 128), 1024);
  EXPECT_EQ(most({"--max-connections", "101"}, 2), 51) << "half of all";
  EXPECT_EQ(most({"--max-connections-per-peer", "3000"}, 2), 3000);
}

TEST(Config, ConnectionsOfAllKindsTakeThreeQuartersOfTheDescriptors) {
  const auto most = [](std::initializer_list<const char*> flags, int64_t descriptors) {
    return Parse(flags, {2, 0, descriptors}).config->max_connections;
  };
  EXPECT_EQ(most({}, 1024), 384);
  EXPECT_EQ(most({"--trusted-proxy", "unix:/proxy"}, 1024), 256) << "a third kind";
  EXPECT_EQ(most({"--trusted-proxy", "unix:/proxy"}, 1 << 20), 4096);
  EXPECT_EQ(most({"--trusted-proxy", "unix:/proxy", "--max-connections", "300"}, 1024), 300);
}

TEST(Config, RegionsTakeAQuarterOfALimitOfVirtualMemory) {
  const auto bytes = [](std::initializer_list<const char*> flags, int64_t limit) {
    return Parse(flags, {.cpus = 2, .memory_bytes = limit / 2, .virtual_memory_bytes = limit}).config->max_region_bytes;
  };
  EXPECT_EQ(bytes({}, int64_t{2} << 30), int64_t{512} << 20);
  EXPECT_EQ(bytes({"--max-region-bytes", "8GiB"}, int64_t{2} << 30), int64_t{512} << 20);
  EXPECT_EQ(bytes({"--max-region-bytes", "1MiB"}, int64_t{2} << 30), int64_t{1} << 20);
  EXPECT_EQ(Parse({}).config->max_region_bytes, int64_t{4} << 30);
}

TEST(Config, EachCommandLineStartsFromTheDefaults) {
  ArgumentParser parser;
  ASSERT_TRUE(ParseBy(&parser, {"--max-heads", "34", "--listen=[::]:0,unix:/a"}).config);
  EXPECT_FALSE(ParseBy(&parser, {"--max-heads=0"}).config);
  EXPECT_FALSE(ParseBy(&parser, {"--help", "--max-rotary-dim=8"}).config);
  const ParsedArguments parsed = ParseBy(&parser, {});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_EQ(parsed.config->limits.max_heads, Limits().max_heads);
  EXPECT_EQ(parsed.config->limits.max_rotary_dim, Limits().max_rotary_dim);
  EXPECT_THAT(parsed.config->listen, testing::ElementsAre("127.0.0.1:50051"));
}

TEST(Config, FlagsWinOverTheEnvironment) {
  const Environment heads("POSENC_SERVER_MAX_HEADS", "12");
  const Environment rank("POSENC_SERVER_MAX_TENSOR_RANK", "5");
  const ParsedArguments parsed = Parse({"--max-heads", "34", "--listen=[::]:0"});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_EQ(parsed.config->limits.max_heads, 34);
  EXPECT_EQ(parsed.config->limits.max_tensor_rank, 5);
  EXPECT_THAT(parsed.config->listen, testing::ElementsAre("[::]:0"));
}

TEST(Config, SizesHaveUnits) {
  const ParsedArguments parsed = Parse({"--max-request-bytes", "64MiB", "--max-output-bytes=2048"});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_EQ(parsed.config->limits.max_request_bytes, 64 << 20);
  EXPECT_EQ(parsed.config->limits.max_output_bytes, 2048);
}

TEST(Config, AFlagIsNotTheValueOfTheOneBefore) {
  EXPECT_EQ(Parse({"--listen=unix:/tmp/a="}).config->listen, std::vector<std::string>{"unix:/tmp/a="});
  const ParsedArguments parsed = Parse({"--device-plugin=", "--tls-client-ca=", "--threads=2"});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_EQ(parsed.config->device_plugin, "");
  EXPECT_TRUE(parsed.config->tls_client_ca.empty());
  EXPECT_EQ(parsed.config->threads, 2);
  EXPECT_THAT(Parse({"--threads=", "3"}).text, HasSubstr("unexpected argument 3"));
}

TEST(Config, WrongCommandLinesAreSaidAsThoseOfTheCommand) {
  const std::pair<std::vector<const char*>, std::string> cases[] = {
      {{"--listen", "--threads", "2"}, "--listen needs a value: TEXT\n  address and port to listen on"},
      {{"--listen", "--threads=2"}, "--listen needs a value: TEXT\n"},
      {{"--threads=2", "--max-heads"}, "--max-heads needs a value: COUNT\n"},
      {{"--log-format", "--reflection", "on"}, "--log-format needs a value: text|json\n"},
      {{"--listn", "x"}, "unknown flag --listn; did you mean --listen?\n"},
      {{"stray"}, "unexpected argument stray\n"},
      {{"--threads", "5000"}, "--threads: is 5000; must be from 0 to 4096\n"},
      {{"--threads="}, "--threads: is \"\"; must be from 0 to 4096\n"},
      {{"--listen=unix:/a", "--listen="},
       "--listen: is \"\"; must be ADDRESS:PORT, [ADDRESS]:PORT, :PORT or unix:PATH\n"},
      {{"--log-level", "warn"},
       "--log-level: is warn; must be one of debug, info, warning, error, off; did you mean warning?\n"},
      {{"--max-request-bytes", "1fortnight"}, "--max-request-bytes: is 1fortnight; must be a size in bytes"},
  };
  for (const auto& [arguments, message] : cases) {
    const ParsedArguments parsed = Parse(arguments);
    EXPECT_FALSE(parsed.config) << arguments[0];
    EXPECT_THAT(parsed.text, testing::StartsWith("posenc-server: " + message));
    EXPECT_THAT(parsed.text, testing::EndsWith("\nSee `posenc-server --help`.\n"));
  }
}

TEST(Config, RefusesBadValuesAndNamesThem) {
  struct Case {
    std::vector<const char*> arguments;
    const char* expected;
  };
  const Case cases[] = {
      {{"--threads", "-1"}, "--threads"},
      {{"--threads", "two"}, "--threads"},
      {{"--threads", "1.5"}, "--threads"},
      {{"--max-request-bytes", "3GiB"}, "--max-request-bytes"},  // gRPC's sizes are ints
      {{"--max-request-bytes", "1 fortnight"}, "--max-request-bytes"},
      {{"--max-request-bytes", "-5"}, "--max-request-bytes"},
      {{"--max-sequences", "99999999999999999999"}, "--max-sequences"},
      {{"--drain-timeout", "nan"}, "--drain-timeout"},
      {{"--log-format", "xml"}, "--log-format"},
      {{"--no-such-flag"}, "--no-such-flag"},
      {{"stray"}, "stray"},
      {{"--max-in-flight-bytes", "1MiB"}, "--max-in-flight-bytes (1048576) is less than --max-request-bytes"},
      {{"--memory-quota-bytes", "1GiB"}, "three times"},
  };
  for (const Case& c : cases) {
    const ParsedArguments parsed = Parse(c.arguments);
    EXPECT_FALSE(parsed.config) << c.arguments[0];
    EXPECT_EQ(parsed.exit_status, 2) << c.arguments[0];
    EXPECT_THAT(parsed.text, HasSubstr(c.expected));
    EXPECT_THAT(parsed.text, testing::StartsWith("posenc-server: "));
  }
}

TEST(Config, RefusesBadValuesFromTheEnvironment) {
  const Environment environment("POSENC_SERVER_MAX_HEADS", "0");
  const ParsedArguments parsed = Parse({});
  EXPECT_EQ(parsed.exit_status, 2);
  EXPECT_THAT(parsed.text, HasSubstr("--max-heads"));
}

TEST(Config, NamesVariablesThatAreNoSetting) {
  const Environment misspelt("POSENC_SERVER_MAX_HEAD", "12");
  const Environment setting("POSENC_SERVER_MAX_HEADS", "12");
  const Environment by_kubernetes[] = {{"POSENC_SERVER_PORT", "tcp://10.0.0.1:50051"},
                                       {"POSENC_SERVER_SERVICE_HOST", "10.0.0.1"},
                                       {"POSENC_SERVER_PORT_50051_TCP", "tcp://10.0.0.1:50051"}};
  EXPECT_THAT(Parse({}).unknown_variables, testing::ElementsAre("POSENC_SERVER_MAX_HEAD"));
}

TEST(Config, SaysItsVersion) {
  const ParsedArguments parsed = Parse({"--version"});
  EXPECT_EQ(parsed.exit_status, 0);
  EXPECT_THAT(parsed.text, testing::MatchesRegex("posenc-server [0-9]+[.][0-9]+[.][0-9]+\n"));
}

TEST(Config, AFractionOfALittleMemory) {
  const ParsedArguments parsed = Parse({}, {1, int64_t{256} << 20});
  ASSERT_TRUE(parsed.config) << parsed.text;
  EXPECT_EQ(parsed.config->max_in_flight_bytes, 64 << 20);
  EXPECT_EQ(parsed.config->limits.max_request_bytes, 32 << 20) << "a request and its answer fit together";
  EXPECT_EQ(parsed.config->limits.max_output_bytes, 32 << 20);
  EXPECT_FALSE(Parse({"--max-request-bytes", "100MiB"}, {1, int64_t{256} << 20}).config) << "what was set stays";
}

TEST(Config, HelpNamesEverySettingItsUnitAndItsVariable) {
  const ParsedArguments parsed = Parse({"--help"});
  EXPECT_FALSE(parsed.config);
  EXPECT_EQ(parsed.exit_status, 0);
  for (const auto& [name, value] : Describe(Config())) EXPECT_THAT(parsed.text, HasSubstr("--" + name));
  EXPECT_THAT(parsed.text, HasSubstr("--keepalive-time SECONDS [60]"));
  EXPECT_THAT(parsed.text, HasSubstr("POSENC_SERVER_MAX_HEADS"));
  EXPECT_THAT(parsed.text, HasSubstr("Limits of one request"));
}

TEST(Config, DescribesItself) {
  const auto settings = Describe(*Parse({"--max-heads", "7", "--log-format", "json"}).config);
  EXPECT_THAT(settings, Contains(Pair("max-heads", "7")));
  EXPECT_THAT(settings, Contains(Pair("log-format", "json")));
  EXPECT_THAT(settings, Contains(Pair("threads", "6")));
}

}  // namespace
}  // namespace posenc::server
