// The in-process backend and a server give the same bytes and errors.
#include "posenc/backend/backend.h"

#include <time.h>

#include <chrono>
#include <cstdint>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "posenc/base/status.h"
#include "posenc/client/client.h"
#include "posenc/client/shared_memory.h"
#include "posenc/in_process/in_process.h"
#include "server/core/config.h"
#include "server/grpc/server.h"

namespace posenc::backend_test {
namespace {

class BackendTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    server::Config config;
    config.listen = {"127.0.0.1:0"};
    config.threads = 1;
    socket_ = testing::TempDir() + "/posenc-backend-" + std::to_string(getpid());
    config.shared_memory_socket = socket_;
    config.log_level = "error";
    ASSERT_EQ(server::Complete({1, 0}, &config), "");
    auto server = server::Server::Start(config);
    ASSERT_TRUE(server.ok()) << server.status();
    server_ = server->release();
  }
  static void TearDownTestSuite() {
    delete server_;
    server_ = nullptr;
  }

  BackendTest() : client_({.address = "127.0.0.1:" + std::to_string(server_->port()), .credentials = nullptr}) {}

  // Calls both backends, expects equal results, and returns one of them.
  template <typename Request, typename Response>
  absl::StatusOr<Response> Ask(absl::StatusOr<Response> (Backend::*method)(const Request&, const CallOptions&),
                               const Request& request) {
    const absl::StatusOr<Response> remote = (static_cast<Backend&>(client_).*method)(request, {});
    const absl::StatusOr<Response> local = (static_cast<Backend&>(in_process_).*method)(request, {});
    EXPECT_EQ(remote.status(), local.status());  // payloads are compared too
    if (remote.ok() && local.ok()) {
      EXPECT_EQ(remote->SerializeAsString(), local->SerializeAsString());
    }
    return local;
  }

  static server::Server* server_;
  static std::string socket_;
  Client client_;
  InProcess in_process_;
};

server::Server* BackendTest::server_ = nullptr;
std::string BackendTest::socket_;

v1::RotarySource Source() {
  v1::RotarySource source;
  v1::RotarySettings& settings = *source.mutable_settings();
  settings.mutable_rope_parameters()->set_rope_type("default");
  settings.set_rotary_dim(8);
  settings.set_input_pairing(v1::PAIRING_HALF_SPLIT);
  return source;
}

v1::Tensor Random(const std::vector<int64_t>& shape) {
  constexpr uint32_t kSeed = 77;
  std::mt19937 random(kSeed);
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_BF16);
  int64_t count = 1;
  for (int64_t dimension : shape) {
    tensor.add_shape(dimension);
    count *= dimension;
  }
  std::string& data = *tensor.mutable_data();
  for (int64_t i = 0; i < count; ++i) {  // 0x3f..: 0.5 .. 2
    data += static_cast<char>(random());
    data += '\x3f';
  }
  return tensor;
}

v1::GenerateTableRequest Table(int64_t count) {
  v1::GenerateTableRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_positions()->set_offset(-7);
  request.set_count(count);
  request.set_dtype(v1::DATA_TYPE_FP32);
  request.set_form(v1::TABLE_FORM_HALF_WIDTH);
  return request;
}

TEST_F(BackendTest, Rotary) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_positions()->set_offset(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() = Random({2, 300, 4, 8});
  *request.mutable_k()->mutable_tensor() = Random({2, 300, 1, 16});
  const auto response = Ask(&Backend::ApplyRotary, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_NE(response->q().data(), request.q().tensor().data());
  EXPECT_EQ(response->k().data().size(), request.k().tensor().data().size());
}

TEST_F(BackendTest, RotaryInSharedMemory) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_positions()->set_offset(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() = Random({2, 300, 4, 8});
  const auto plain = client_.ApplyRotary(request);
  ASSERT_TRUE(plain.ok()) << plain.status();

  const size_t size = plain->q().data().size();
  auto memory = SharedMemory::Create(socket_, 2 * size);
  ASSERT_TRUE(memory.ok()) << memory.status();
  EXPECT_EQ(memory->size(), 2 * size);
  v1::Tensor& tensor = *request.mutable_q()->mutable_tensor();
  std::memcpy(memory->data(), tensor.data().data(), size);
  tensor.clear_data();
  *tensor.mutable_region() = memory->Part(0, size);
  for (const size_t to : {size, size_t{0}}) {
    *request.mutable_q()->mutable_output() = memory->Part(to, size);
    const auto response = client_.ApplyRotary(request);
    ASSERT_TRUE(response.ok()) << response.status();
    EXPECT_TRUE(response->q().data().empty());
    EXPECT_EQ(response->q().region().SerializeAsString(), request.q().output().SerializeAsString());
    EXPECT_EQ(std::memcmp(memory->data() + to, plain->q().data().data(), size), 0) << to;
  }
  EXPECT_EQ(client_.GetServerInfo()->counters().region_bytes(), static_cast<int64_t>(2 * size));
  EXPECT_EQ(DetailsOf(in_process_.ApplyRotary(request).status()).reason, "UNSUPPORTED");

  SharedMemory moved = *std::move(memory);
  EXPECT_TRUE(client_.ApplyRotary(request).ok());
  moved = *SharedMemory::Create(socket_, 1);
  while (client_.GetServerInfo()->counters().regions() != 1) std::this_thread::yield();
  EXPECT_EQ(client_.ApplyRotary(request).status().code(), absl::StatusCode::kNotFound);
}

TEST(SharedMemory, SaysWhyItCannotBe) {
  EXPECT_EQ(SharedMemory::Create("/no/such/socket", 1).status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(DetailsOf(SharedMemory::Create("/no/such/socket", 0).status()).field, "bytes");
  EXPECT_EQ(DetailsOf(SharedMemory::Create(std::string(200, 'x'), 1).status()).field, "socket");
}

TEST_F(BackendTest, SharedMemoryHasALimit) {
  const absl::Status status = SharedMemory::Create(socket_, size_t{5} << 30).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(DetailsOf(status).reason, "TOO_LARGE");
}

TEST_F(BackendTest, TablesWholeAndByTiles) {
  const auto whole = Ask(&Backend::GenerateTable, Table(1000));
  ASSERT_TRUE(whole.ok()) << whole.status();
  v1::StreamTableRequest request;
  *request.mutable_table() = Table(1000);
  request.set_rows_per_tile(300);
  for (Backend* backend : std::vector<Backend*>{&client_, &in_process_}) {
    std::string cos, sin;
    std::vector<int64_t> begins;
    const absl::Status status = backend->StreamTable(request, [&](const v1::StreamTableResponse& tile) {
      EXPECT_EQ(tile.has_info(), begins.empty());
      begins.push_back(tile.row_begin());
      cos += tile.cos().data();
      sin += tile.sin().data();
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(begins, testing::ElementsAre(0, 300, 600, 900));
    EXPECT_EQ(cos, whole->cos().data());
    EXPECT_EQ(sin, whole->sin().data());
  }
}

TEST_F(BackendTest, ATableOfNoRowsHasItsInfo) {
  v1::StreamTableRequest request;
  *request.mutable_table() = Table(0);
  for (Backend* backend : std::vector<Backend*>{&client_, &in_process_}) {
    int tiles = 0;
    const absl::Status status = backend->StreamTable(request, [&](const v1::StreamTableResponse& tile) {
      ++tiles;
      EXPECT_EQ(tile.info().rotary_dim(), 8);
      EXPECT_THAT(tile.cos().shape(), testing::ElementsAre(0, 4));
      return absl::OkStatus();
    });
    EXPECT_TRUE(status.ok()) << status;
    EXPECT_EQ(tiles, 1);
  }
}

// Streams q alone; the tensor fits into one chunk of the default size.
TEST_F(BackendTest, RotaryByChunksOfQAlone) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_positions()->set_offset(1000);
  request.set_layout(v1::LAYOUT_BSHD);
  *request.mutable_q()->mutable_tensor() = Random({1, 50, 2, 8});
  const auto whole = Ask(&Backend::ApplyRotary, request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  std::string q = request.q().tensor().data(), out(q.size(), '\0');
  request.mutable_q()->mutable_tensor()->clear_data();
  for (Backend* backend : std::vector<Backend*>{&client_, &in_process_}) {
    const auto info = backend->StreamApplyRotary(request, {.q = {q.data(), out.data()}, .k = {}});
    ASSERT_TRUE(info.ok()) << info.status();
    EXPECT_TRUE(out == whole->q().data());
  }
}

TEST_F(BackendTest, RotaryByChunks) {
  v1::ApplyRotaryRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_positions()->set_offset(1000);
  request.set_layout(v1::LAYOUT_BHSD);
  *request.mutable_q()->mutable_tensor() = Random({2, 4, 300, 8});
  *request.mutable_k()->mutable_tensor() = Random({2, 1, 300, 16});
  const auto whole = Ask(&Backend::ApplyRotary, request);
  ASSERT_TRUE(whole.ok()) << whole.status();
  v1::ApplyRotaryRequest header = request;
  header.mutable_q()->mutable_tensor()->clear_data();
  header.mutable_k()->mutable_tensor()->clear_data();
  for (Backend* backend : std::vector<Backend*>{&client_, &in_process_}) {
    for (const bool in_place : {false, true}) {
      std::string q = request.q().tensor().data(), k = request.k().tensor().data();
      std::string q_out(q.size(), '\0'), k_out(k.size(), '\0');
      const RotaryMemory memory{.q = {q.data(), in_place ? q.data() : q_out.data()},
                                .k = {k.data(), in_place ? k.data() : k_out.data()}};
      const auto info = backend->StreamApplyRotary(header, memory, {.bytes = 1000, .in_flight = 3});
      ASSERT_TRUE(info.ok()) << info.status();
      EXPECT_EQ(info->SerializeAsString(), whole->info().SerializeAsString());
      EXPECT_TRUE((in_place ? q : q_out) == whole->q().data());
      EXPECT_TRUE((in_place ? k : k_out) == whole->k().data());
    }
    std::string q = request.q().tensor().data();
    std::string out(q.size() + 16, '\0');
    const auto status = [&](const RotaryMemory& memory) { return backend->StreamApplyRotary(header, memory).status(); };
    EXPECT_EQ(DetailsOf(status({.q = {q.data(), out.data()}, .k = {}})).field, "memory.k");
    EXPECT_EQ(DetailsOf(status({.q = {out.data(), out.data() + 16}, .k = {q.data(), q.data() + 32}})).field,
              "memory.q.output")
        << "in place, but not quite";
    *header.mutable_k()->mutable_tensor()->mutable_data() = "x";
    EXPECT_EQ(DetailsOf(status({.q = {q.data(), out.data()}, .k = {}})).field,
              backend == &client_ ? "memory.k" : "header.k.tensor.data");
    header.mutable_k()->mutable_tensor()->clear_data();
  }
}

TEST_F(BackendTest, BiasesByTiles) {
  v1::StreamBiasRequest request;
  v1::GenerateBiasRequest& bias = *request.mutable_bias();
  bias.mutable_method()->mutable_alibi()->set_num_heads(4);
  bias.mutable_method()->mutable_alibi()->set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  bias.mutable_method()->mutable_alibi()->set_form(v1::ALIBI_FORM_SYMMETRIC);
  bias.mutable_geometry()->set_query_length(20);
  bias.mutable_geometry()->set_key_length(20);
  bias.set_form(v1::BIAS_FORM_DENSE);
  bias.set_dtype(v1::DATA_TYPE_FP16);
  request.set_rows_per_tile(6);
  std::vector<std::string> tiles;
  for (Backend* backend : std::vector<Backend*>{&client_, &in_process_}) {
    std::vector<int64_t> begins;
    std::string all;
    const absl::Status status = backend->StreamBias(request, [&](const v1::StreamBiasResponse& tile) {
      begins.push_back(tile.row_begin());
      EXPECT_EQ(tile.has_info(), begins.size() == 1);
      all += tile.bias().data();
      return absl::OkStatus();
    });
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_THAT(begins, testing::ElementsAre(0, 6, 12, 18));
    tiles.push_back(all);
  }
  EXPECT_EQ(tiles[0].size(), 4 * 20 * 20 * 2);
  EXPECT_TRUE(tiles[0] == tiles[1]);
}

TEST_F(BackendTest, Embedding) {
  v1::GenerateEmbeddingRequest request;
  request.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_HALVES);
  request.mutable_sinusoidal()->set_dim(6);
  request.mutable_positions()->set_offset(3);
  request.set_count(5);
  request.set_dtype(v1::DATA_TYPE_FP64);
  const auto response = Ask(&Backend::GenerateEmbedding, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->embedding().data().size(), 5 * 6 * 8);
}

TEST_F(BackendTest, BiasAloneAndAdded) {
  v1::GenerateBiasRequest request;
  v1::Alibi& alibi = *request.mutable_method()->mutable_alibi();
  alibi.set_num_heads(4);
  alibi.set_rule(v1::ALIBI_SLOPE_RULE_POWER_OF_TWO);
  alibi.set_form(v1::ALIBI_FORM_SYMMETRIC);
  request.mutable_geometry()->set_query_length(3);
  request.mutable_geometry()->set_key_length(5);
  request.mutable_geometry()->set_query_offset(2);
  request.set_form(v1::BIAS_FORM_DENSE);
  request.set_dtype(v1::DATA_TYPE_FP16);
  const auto bias = Ask(&Backend::GenerateBias, request);
  ASSERT_TRUE(bias.ok()) << bias.status();
  EXPECT_THAT(bias->bias().shape(), testing::ElementsAre(4, 3, 5));

  v1::AddBiasRequest add;
  *add.mutable_method() = request.method();
  add.mutable_geometry()->set_query_offset(2);
  *add.mutable_scores() = Random({2, 4, 3, 5});
  const auto scores = Ask(&Backend::AddBias, add);
  ASSERT_TRUE(scores.ok()) << scores.status();
  EXPECT_NE(scores->scores().data(), add.scores().data());
}

TEST_F(BackendTest, Explanations) {
  v1::ExplainRequest request;
  *request.mutable_rotary() = Source().settings();
  const auto response = Ask(&Backend::Explain, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->layers(0).info().plan().frequencies(0).inv_freq_size(), 4);
}

TEST_F(BackendTest, Analyses) {
  v1::AnalyzeRequest request;
  *request.mutable_rotary() = Source();
  request.mutable_distances()->set_offset(-2);
  request.set_count(5);
  const auto response = Ask(&Backend::Analyze, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->pairs_size(), 4);
  EXPECT_EQ(response->cosine_sum().data().size(), 5 * 8);
}

TEST_F(BackendTest, Diagnoses) {
  v1::DiagnoseRequest request;
  *request.mutable_expected() = Source();
  request.mutable_positions()->set_offset(3);
  request.set_layout(v1::LAYOUT_BSHD);
  v1::BeforeAndAfter& q = *request.mutable_rotation()->mutable_q();
  std::vector<float> x(5 * 8);
  for (size_t n = 0; n < x.size(); ++n) x[n] = static_cast<float>(n % 7) - 2.5f;
  for (v1::Tensor* tensor : {q.mutable_before(), q.mutable_after()}) {
    tensor->set_dtype(v1::DATA_TYPE_FP32);
    for (const int64_t dimension : {1, 5, 1, 8}) tensor->add_shape(dimension);
    tensor->set_data(x.data(), x.size() * sizeof(float));
  }
  const auto response = Ask(&Backend::Diagnose, request);
  ASSERT_TRUE(response.ok()) << response.status();
  ASSERT_GE(response->undecided_size(), 1);
  EXPECT_EQ(response->undecided(0).code(), "NOTHING_CHANGED");
}

TEST_F(BackendTest, DiagnosesBiases) {
  v1::DiagnoseBiasRequest request;
  v1::Tensor& bias = *request.mutable_bias();
  bias.set_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t dimension : {1, 2, 3}) bias.add_shape(dimension);
  const float values[] = {0, 0.5, 1, 0, 0.5, 1};
  bias.set_data(values, sizeof(values));
  const auto response = Ask(&Backend::DiagnoseBias, request);
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->follows(), v1::BIAS_FOLLOWS_KEY);
  EXPECT_EQ(response->explanations(0).method().alibi().form(), v1::ALIBI_FORM_BLOOM);
}

TEST_F(BackendTest, ErrorsLookAlike) {
  v1::GenerateTableRequest request = Table(4);
  request.mutable_rotary()->mutable_settings()->set_rotary_dim(7);
  const auto odd = Ask(&Backend::GenerateTable, request);
  EXPECT_TRUE(absl::IsInvalidArgument(odd.status())) << odd.status();
  EXPECT_EQ(DetailsOf(odd.status()).field, "rotary.settings.rotary_dim");

  request = Table(int64_t{1} << 30);
  EXPECT_TRUE(absl::IsResourceExhausted(Ask(&Backend::GenerateTable, request).status()));

  request = Table(4);
  request.set_form(static_cast<v1::TableForm>(99));
  EXPECT_EQ(DetailsOf(Ask(&Backend::GenerateTable, request).status()).reason, "UNKNOWN_VALUE");
}

TEST_F(BackendTest, InformationIsTheLibrarysPlusTheServers) {
  const auto remote = client_.GetServerInfo(), local = in_process_.GetServerInfo();
  ASSERT_TRUE(remote.ok()) << remote.status();
  EXPECT_EQ(remote->version(), local->version());
  EXPECT_EQ(remote->cpu_target(), local->cpu_target());
  EXPECT_FALSE(local->has_counters());
  EXPECT_GT(remote->counters().requests_started(), 0);
  EXPECT_EQ(local->devices_size(), 1);
  EXPECT_EQ(*client_.CheckHealth("posenc.v1.PositionalEncodingService"), ServingStatus::kServing);
  EXPECT_EQ(*in_process_.CheckHealth(), ServingStatus::kServing);
}

std::chrono::nanoseconds CpuTime(clockid_t clock) {
  timespec time{};
  clock_gettime(clock, &time);
  return std::chrono::seconds(time.tv_sec) + std::chrono::nanoseconds(time.tv_nsec);
}

TEST(InProcess, AsManyThreadsComputeAsItIsTold) {
  const auto others = [] { return CpuTime(CLOCK_PROCESS_CPUTIME_ID) - CpuTime(CLOCK_THREAD_CPUTIME_ID); };
  const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
  InProcess two({.threads = 2});
  const auto before = others();
  std::chrono::nanoseconds worked(0);  // read once: the two clocks are not read at the same moment
  while ((worked = others() - before) < std::chrono::milliseconds(5) && std::chrono::steady_clock::now() < until) {
    ASSERT_TRUE(two.GenerateTable(Table(10'000)).ok());
  }
  EXPECT_GE(worked, std::chrono::milliseconds(5));
  EXPECT_EQ(two.GetServerInfo()->devices(0).threads(), 2);
}

TEST(InProcess, StopsAtItsTimeLimit) {
  const auto response = InProcess().GenerateTable(Table(1000), {.timeout = Duration::zero()});
  EXPECT_TRUE(absl::IsDeadlineExceeded(response.status())) << response.status();
}

// Returns a tensor of FP32 ones.
v1::Tensor Ones(std::initializer_list<int64_t> shape) {
  v1::Tensor tensor;
  tensor.set_dtype(v1::DATA_TYPE_FP32);
  int64_t count = 1;
  for (const int64_t size : shape) {
    tensor.add_shape(size);
    count *= size;
  }
  const std::vector<float> ones(count, 1.0f);
  tensor.set_data(ones.data(), ones.size() * sizeof(float));
  return tensor;
}

// Settings are completed in copies of their messages, whose tensors are still the caller's.
TEST_F(BackendTest, InputsOfSettings) {
  v1::RelativeValuesRequest values;
  *values.mutable_shaw()->mutable_table() = Ones({5, 4});
  values.mutable_shaw()->set_order(v1::SHAW_ORDER_KEY_MINUS_QUERY);
  values.mutable_shaw()->set_clip(true);
  values.set_layout(v1::LAYOUT_BHSD);
  values.set_dtype(v1::DATA_TYPE_FP32);
  *values.mutable_probabilities() = Ones({1, 1, 3, 3});
  const auto inline_values = Ask(&Backend::RelativeValues, values);
  ASSERT_TRUE(inline_values.ok()) << inline_values.status();
  const std::string table = std::exchange(*values.mutable_shaw()->mutable_table()->mutable_data(), "");
  const wire::TensorView table_view{&values.shaw().table(),
                                    {reinterpret_cast<const std::byte*>(table.data()), table.size()}};
  for (Backend* backend : {static_cast<Backend*>(&client_), static_cast<Backend*>(&in_process_)}) {
    const auto beside = backend->RelativeValues(values, {.inputs = {table_view}});
    ASSERT_TRUE(beside.ok()) << beside.status();
    EXPECT_EQ(beside->values().data(), inline_values->values().data());
  }

  v1::GenerateEmbeddingRequest embedding;
  embedding.mutable_sinusoidal()->set_convention(v1::SINUSOIDAL_CONVENTION_FAIRSEQ);
  embedding.mutable_sinusoidal()->set_dim(4);
  embedding.mutable_sinusoidal()->set_padding_idx(1);
  v1::Tensor& valid = *embedding.mutable_sinusoidal()->mutable_token_valid();
  valid.set_dtype(v1::DATA_TYPE_BOOL);
  for (const int64_t size : {1, 3}) valid.add_shape(size);
  const std::string flags("\0\1\1", 3);
  valid.set_data(flags);
  embedding.set_dtype(v1::DATA_TYPE_FP32);
  const auto inline_embedding = Ask(&Backend::GenerateEmbedding, embedding);
  ASSERT_TRUE(inline_embedding.ok()) << inline_embedding.status();
  valid.clear_data();
  const wire::TensorView valid_view{&valid, {reinterpret_cast<const std::byte*>(flags.data()), flags.size()}};
  const auto beside = in_process_.GenerateEmbedding(embedding, {.inputs = {valid_view}});
  ASSERT_TRUE(beside.ok()) << beside.status();
  EXPECT_EQ(beside->embedding().data(), inline_embedding->embedding().data());
}

}  // namespace
}  // namespace posenc::backend_test
