// `posenc demo`: commands that a user can repeat, run with a posenc-server of its own, and a check of what it answers.
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "posenc/base/status.h"
#include "tools/files/file_io.h"
#include "tools/files/tensor_file.h"
#include "tools/posenc/colour.h"
#include "tools/posenc/processes.h"
#include "tools/posenc/session.h"

namespace posenc::command {
namespace {

// The fields of a model's config.json that its positions need.
constexpr char kModel[] = R"({
  "model_type": "llama",
  "hidden_size": 4096,
  "num_attention_heads": 32,
  "num_key_value_heads": 8,
  "max_position_embeddings": 131072,
  "rope_theta": 500000.0,
  "rope_scaling": {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192
  }
}
)";
constexpr char kSettings[] = R"({"rotary": {"rope_parameters": {"rope_type": "default", "rope_theta": 500000},
            "rotary_dim": 128, "input_pairing": "PAIRING_%s"}}
)";
constexpr int64_t kTokens[] = {0, 1, 8191, 131071};
constexpr int64_t kQueryHeads = 32, kPairs = 64;

// Returns the frequencies of kModel, from the published rule of Llama 3.1 and without posenc's own code: theta^(-2i/d),
// unchanged for short wavelengths, divided by the factor for long ones, blended in between.
std::vector<double> Frequencies() {
  constexpr long double kTheta = 500000, kFactor = 8, kLow = 1, kHigh = 4, kLength = 8192;
  std::vector<double> frequencies;
  for (int64_t i = 0; i < kPairs; ++i) {
    const long double frequency = std::pow(kTheta, -static_cast<long double>(i) / kPairs);
    const long double turns = kLength * frequency / (2 * std::acos(-1.0L));
    const long double kept = std::clamp((turns - kLow) / (kHigh - kLow), 0.0L, 1.0L);
    frequencies.push_back(static_cast<double>(kept * frequency + (1 - kept) * frequency / kFactor));
  }
  return frequencies;
}

// What the answers for one token are compared with.
struct Row {
  int64_t token = 0;
  float answer = 0, single = 0;  // of the shown cosine
  long double exact = 0;
  double answer_error = 0, single_error = 0;  // the largest of all elements
};

struct Check {
  std::vector<Row> rows;
  int64_t elements = 0, exact = 0;
};

// Compares the rotated tensor, [1, tokens, heads, 2 * pairs], with the cosines and sines of the angles. `long double`
// has at least 11 bits more than double, so its errors are far below a float's.
absl::StatusOr<Check> Compare(const v1::Tensor& rotated) {
  Check check;
  const std::vector<double> frequencies = Frequencies();
  if (rotated.data().size() != std::size(kTokens) * kQueryHeads * 2 * kPairs * sizeof(float)) {
    return absl::InternalError("the rotated tensor has another size than the input");
  }
  const char* next = rotated.data().data();
  for (const int64_t token : kTokens) {
    Row row{.token = token};
    for (int64_t head = 0; head < kQueryHeads; ++head) {
      for (int64_t element = 0; element < 2 * kPairs; ++element) {
        float answer = 0;
        std::memcpy(&answer, next, sizeof answer);
        next += sizeof answer;
        const double frequency = frequencies[static_cast<size_t>(element % kPairs)];
        const long double angle = static_cast<long double>(token) * frequency;
        const float single_angle = static_cast<float>(token) * static_cast<float>(frequency);
        const bool cosine = element < kPairs;
        const long double exact = cosine ? std::cos(angle) : std::sin(angle);
        const auto single =
            static_cast<float>(cosine ? std::cos(double{single_angle}) : std::sin(double{single_angle}));
        ++check.elements;
        check.exact += answer == static_cast<float>(exact);
        row.answer_error = std::max(row.answer_error, static_cast<double>(std::fabs(answer - exact)));
        row.single_error = std::max(row.single_error, static_cast<double>(std::fabs(single - exact)));
        if (head == 0 && element == 1) {
          row.answer = answer;
          row.single = single;
          row.exact = exact;
        }
      }
    }
    check.rows.push_back(row);
  }
  return check;
}

// Returns q, whose rotation is the cosine and the sine of each angle: the first elements of the pairs are 1, the second
// ones are 0.
v1::Tensor Query() {
  v1::Tensor q;
  q.set_dtype(v1::DATA_TYPE_FP32);
  for (const int64_t size : {int64_t{1}, static_cast<int64_t>(std::size(kTokens)), kQueryHeads, 2 * kPairs}) {
    q.add_shape(size);
  }
  std::vector<float> values;
  for (size_t row = 0; row < std::size(kTokens) * kQueryHeads; ++row) {
    values.insert(values.end(), kPairs, 1.0f);
    values.insert(values.end(), kPairs, 0.0f);
  }
  q.set_data(values.data(), values.size() * sizeof(float));
  return q;
}

std::string WithCommas(int64_t number) {
  std::string digits = absl::StrCat(number);
  for (int at = static_cast<int>(digits.size()) - 3; at > 0; at -= 3) digits.insert(static_cast<size_t>(at), 1, ',');
  return digits;
}

// Returns the command as a user types it: flags that do not fit on a line continue on the next.
std::string Typed(const std::vector<std::string>& arguments) {
  constexpr size_t kLine = 100;
  std::string text = "$ posenc";
  size_t width = text.size();
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_value = i + 1 < arguments.size() && arguments[i][0] == '-' && arguments[i + 1][0] != '-';
    const std::string words = has_value ? arguments[i] + " " + arguments[i + 1] : arguments[i];
    i += has_value;
    const bool fits = width + 1 + words.size() <= kLine;
    absl::StrAppend(&text, fits ? " " : " \\\n    ", words);
    width = fits ? width + 1 + words.size() : 4 + words.size();
  }
  return text;
}

// A running demo: prints and runs the commands in a temporary folder.
class Demo {
 public:
  Demo(std::string folder, std::string server, bool quiet)
      : folder_(std::move(folder)), server_(std::move(server)), quiet_(quiet) {}

  std::string File(const std::string& name) const { return folder_ + "/" + name; }
  const nlohmann::ordered_json& commands() const { return commands_; }

  void Say(const std::string& text) const {
    if (!quiet_) std::printf("%s\n", text.c_str());
    std::fflush(stdout);
  }
  void Title(const std::string& text) const { Say("\n" + Coloured(stdout, Colour::kBold, text)); }

  // Runs a command, given as words separated by spaces, in `folder`. Returns an error if it ends with another exit
  // code.
  absl::Status Command(const std::string& words, int exit_code = 0, const std::string& folder = "") {
    const std::vector<std::string> arguments = absl::StrSplit(words, ' ');
    Say(Coloured(stdout, Colour::kCyan, Typed(arguments)));
    std::error_code unknown;
    const std::string self = std::filesystem::read_symlink("/proc/self/exe", unknown).string();
    POSENC_ASSIGN_OR_RETURN(const int ended, Run({.path = self,
                                                  .arguments = arguments,
                                                  .folder = folder.empty() ? folder_ : folder,
                                                  .server = server_,
                                                  .output = quiet_ ? File("output") : ""}));
    commands_.push_back("posenc " + words);
    if (ended == exit_code) return absl::OkStatus();
    return absl::InternalError(
        absl::StrCat("posenc ", arguments[0], " ended with exit code ", ended, "; expected ", exit_code));
  }

 private:
  const std::string folder_, server_;
  const bool quiet_;
  nlohmann::ordered_json commands_ = nlohmann::ordered_json::array();
};

absl::StatusOr<Check> Rotate(Demo* demo) {
  const v1::Tensor q = Query();
  POSENC_RETURN_IF_ERROR(WriteTensors(demo->File("q.npy"), {{"q", &q}}));
  demo->Title("Rotate q, 4 tokens far apart. Its pairs are (1, 0), so the answer is the cosine and sine of each angle");
  POSENC_RETURN_IF_ERROR(demo->Command(absl::StrCat("rope --model llama-3.1-8b.json --positions ",
                                                    absl::StrJoin(kTokens, ","), " --q q.npy --q-out rotated.npy")));
  POSENC_ASSIGN_OR_RETURN(const v1::Tensor rotated, ReadTensor(demo->File("rotated.npy")));
  POSENC_ASSIGN_OR_RETURN(Check check, Compare(rotated));
  demo->Say(
      "\nCosine of pair 1, and the largest error of all pairs:\n"
      "    token        answer   exact value       float32 angle*   error of answer   of float32 angles*");
  for (const Row& row : check.rows) {
    demo->Say(absl::StrFormat("  %7s  %12.9f  %.15f  %12.9f  %16.1e  %19.1e", WithCommas(row.token), row.answer,
                              static_cast<double>(row.exact), row.single, row.answer_error, row.single_error));
  }
  demo->Say(
      absl::StrFormat("* position times frequency rounded to float32, as in most code\n%s of %s elements are the "
                      "exact value, rounded once.",
                      WithCommas(check.exact), WithCommas(check.elements)));
  return check;
}

absl::Status ShowBias(Demo* demo) {
  demo->Title("A bias: ALiBi's first of 4 heads, 5 queries by 5 keys, causal");
  POSENC_RETURN_IF_ERROR(demo->Command(
      "bias --num-heads 4 --slopes power-of-two --alibi-form causal --query-length 5 --key-length 5 --causal -o "
      "alibi.npy"));
  POSENC_ASSIGN_OR_RETURN(const v1::Tensor bias, ReadTensor(demo->File("alibi.npy")));
  constexpr size_t kSide = 5;
  if (bias.data().size() < kSide * kSide * sizeof(float)) return absl::InternalError("the bias is incomplete");
  for (size_t row = 0; row < kSide; ++row) {
    std::string line;
    for (size_t column = 0; column < kSide; ++column) {
      float value = 0;
      std::memcpy(&value, bias.data().data() + (row * kSide + column) * sizeof value, sizeof value);
      absl::StrAppendFormat(&line, "%8g", value == 0 ? 0 : value);
    }
    demo->Say(line);
  }
  return absl::OkStatus();
}

absl::Status ShowComparison(Demo* demo) {
  demo->Title("Two conventions of the same formula: pairs of elements i and i+64, or of 2i and 2i+1");
  for (const auto& [name, pairing] :
       {std::pair{"half-split.json", "HALF_SPLIT"}, {"interleaved.json", "INTERLEAVED"}}) {
    POSENC_RETURN_IF_ERROR(WriteWholeFile(demo->File(name), absl::StrFormat(kSettings, pairing)));
  }
  return demo->Command("compare half-split.json interleaved.json", kNo);
}

absl::Status RunDemo(const std::string& picture, Session& session) {
  if (session.remote()) {
    return UsageError("--server, POSENC_SERVER: must be absent; demo starts a posenc-server of its own");
  }
  const absl::Time begin = absl::Now();
  EndProgramsAtSignals();
  POSENC_ASSIGN_OR_RETURN(const TemporaryFolder folder, TemporaryFolder::Create());
  POSENC_ASSIGN_OR_RETURN(OwnServer server, OwnServer::Start(folder.path()));
  Demo demo(folder.path(), server.address(), session.json());
  demo.Say("A posenc-server listens on " + server.address() + ". These commands call it, as with --server.");

  POSENC_RETURN_IF_ERROR(WriteWholeFile(demo.File("llama-3.1-8b.json"), kModel));
  demo.Title("What does this config.json mean?");
  POSENC_RETURN_IF_ERROR(demo.Command("explain --model llama-3.1-8b.json"));
  POSENC_ASSIGN_OR_RETURN(const Check check, Rotate(&demo));
  POSENC_RETURN_IF_ERROR(ShowBias(&demo));
  POSENC_RETURN_IF_ERROR(ShowComparison(&demo));
  demo.Title("Two seconds of load: 4 callers, each waits for its answer, which is compared with the client's own");
  POSENC_RETURN_IF_ERROR(demo.Command("load --concurrency 4 --duration 2s --verify 100% --quiet"));
  if (!picture.empty()) {
    demo.Title("A picture");
    const std::string here = std::filesystem::current_path();
    POSENC_RETURN_IF_ERROR(demo.Command(
        absl::StrCat("plot frequencies --model ", demo.File("llama-3.1-8b.json"), " -o ", picture), 0, here));
  }
  POSENC_RETURN_IF_ERROR(server.Stop());

  if (session.json()) {
    nlohmann::ordered_json result = {{"elements", check.elements},
                                     {"exact_elements", check.exact},
                                     {"seconds", absl::ToDoubleSeconds(absl::Now() - begin)},
                                     {"commands", demo.commands()}};
    std::printf("%s\n", result.dump(2).c_str());
  }
  demo.Say(
      "\nThe server has ended, and nothing was left behind. Try next:\n"
      "  posenc explain --model FOLDER            your own model: its folder, config.json or GGUF\n"
      "  posenc diagnose --model FOLDER --before q.npy --after q_rotated.npy   what another system did\n"
      "  posenc serve --listen 127.0.0.1:50051    a server, for posenc --server and for programs\n"
      "  posenc help                              all commands, each with examples");
  if (check.exact == check.elements) return absl::OkStatus();
  return absl::InternalError(absl::StrCat(check.elements - check.exact, " elements are not the exact value, rounded"));
}

}  // namespace

Subcommand AddDemo(CLI::App& parent) {
  CLI::App* app = parent.add_subcommand(
      "demo",
      "Shows what posenc does, in seconds: starts a posenc-server on a free port, calls it and checks its answers");
  const auto picture = std::make_shared<std::string>();
  app->add_option("--picture", *picture, "Also draw a picture, FILE.png or FILE.svg (by gnuplot)")->type_name("FILE");
  return {app, [picture](Session& session) { return RunDemo(*picture, session); }};
}

}  // namespace posenc::command
