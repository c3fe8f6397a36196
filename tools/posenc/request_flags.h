// Flag groups shared by several subcommands, each converted to one message.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/v1/rotary.pb.h"
#include "tools/posenc/messages.h"

namespace posenc::command {

// Returns the help of a flag for a sequence length: the rope_types that depend on it, then `help`.
std::string ByLength(const std::string& help);

// Parsing writes into these objects, so they must not move until it ends. The functions that return a message are
// called after parsing; they return usage errors.

// Flags --model, --component, --layer-type and --layer-index.
class ModelFlags {
 public:
  // `argument`: the model may also be given as the command's argument, without --model.
  void Add(CLI::App& app, bool argument = false);
  bool given() const { return !path_.empty(); }
  const std::string& path() const { return path_; }
  // Call it if --model is absent: returns a usage error if a flag that needs --model was given.
  absl::Status CheckUnused() const;
  // The part and the layer that were chosen.
  const v1::ModelConfig& choice() const { return config_; }
  // Reads the file; also returns its read errors.
  absl::StatusOr<v1::ModelConfig> Get() const;
  // Reads the file, if --model was given, into the field `model` of the message that holds a method's weights.
  // `weights` is null if no weights were given, which is a usage error with --model.
  absl::Status PutBeside(google::protobuf::Message* weights) const;

 private:
  std::string path_;
  v1::ModelConfig config_;
  mutable std::optional<v1::ModelConfig> read_;  // standard input can be read once only
};

// Flags of a rotary embedding: --model, or its settings.
class RotaryFlags {
 public:
  void Add(CLI::App& app, bool model_as_argument = false);
  bool given() const;
  // Returns a usage error if a flag but --model was given.
  absl::Status CheckPathOnly() const;
  // Adds the source of the settings to what is missing, if no flag gives one.
  void AddMissing(Missing* missing) const;
  absl::StatusOr<v1::RotarySource> Get() const;
  const std::string& model_path() const { return model_.path(); }  // empty without --model

 private:
  absl::StatusOr<v1::RotarySettings> Settings() const;
  absl::Status CheckNoSettings() const;  // with --model
  // Settings that --model replaces.
  std::vector<const google::protobuf::Message*> SettingsMessages() const;

  ModelFlags model_;
  v1::RotarySettings pairings_;  // valid with --model and with settings
  v1::RotarySettings settings_;
  v1::RopeParameters parameters_;
  v1::GivenFrequencies frequencies_;
  v1::RotarySettings axial_;  // only axial is used
  v1::GivenTable table_;
  v1::Xpos xpos_;
  v1::QueryScale query_scale_;
  std::string parameters_json_;
};

// Flags --precision, or the three axes of precision.
class PrecisionFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  // Sets request->precision if a flag was given.
  template <typename Request>
  absl::Status Put(Request* request) const {
    POSENC_ASSIGN_OR_RETURN(const std::optional<v1::Precision> precision, Get());
    if (precision) *request->mutable_precision() = *precision;
    return absl::OkStatus();
  }

 private:
  absl::StatusOr<std::optional<v1::Precision>> Get() const;

  v1::Precision precision_;
  v1::PrecisionAxes axes_;
};

// Positions that a subcommand takes: several sequences, or rows of one table.
enum class PositionKind { kSequences, kRows };
void AddPositionFlags(CLI::App& app, PositionKind kind, v1::Positions* positions);
// Adds the positions to what is missing, if no flag gives them.
void AddMissingPositions(const v1::Positions& positions, Missing* missing);
// Returns the number of rows of a table at these positions; `count` is that of --count.
int64_t CountRows(const v1::Positions& positions, int64_t count);
// Sets SCALING_LENGTH_RULE_GIVEN if --seq-len was given without a rule.
void CompletePositions(v1::Positions* positions);

}  // namespace posenc::command
