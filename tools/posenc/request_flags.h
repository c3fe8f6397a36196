// Groups of flags that several subcommands share, each with the message that it becomes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "posenc/base/status.h"
#include "posenc/v1/rotary.pb.h"

namespace posenc::command {

// The flags write into the object, which must stay where it is while they are parsed. The functions that return a
// message are called after that; their errors are usage errors.

// --model and what chooses a part of it.
class ModelFlags {
 public:
  void Add(CLI::App& app);
  bool given() const { return !path_.empty(); }
  // For use without --model: that no flag was given that means nothing then.
  absl::Status CheckUnused() const;
  // Reads the file.
  absl::StatusOr<v1::ModelConfig> Get() const;
  // Reads the file, if one is given, into the field `model` of the message in which a method has its weights; null:
  // none has been given.
  absl::Status PutBeside(google::protobuf::Message* weights) const;

 private:
  std::string path_;
  v1::ModelConfig config_;
};

// A rotary embedding: by --model, or by settings.
class RotaryFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  absl::StatusOr<v1::RotarySource> Get() const;

 private:
  absl::StatusOr<v1::RotarySettings> Settings() const;
  // All that --model says otherwise.
  std::vector<const google::protobuf::Message*> SettingsMessages() const;

  ModelFlags model_;
  v1::RotarySettings pairings_;  // which go with either
  v1::RotarySettings settings_;
  v1::RopeParameters parameters_;
  v1::GivenFrequencies frequencies_;
  v1::RotarySettings axial_;  // only its axial
  v1::GivenTable table_;
  v1::Xpos xpos_;
  std::string parameters_json_;
};

// --precision, or the three axes.
class PrecisionFlags {
 public:
  void Add(CLI::App& app);
  // Sets request->precision, unless no flag was given.
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

// Which positions a subcommand takes.
enum class PositionKind { kSequences, kRows };
void AddPositionFlags(CLI::App& app, PositionKind kind, v1::Positions* positions);
// SCALING_LENGTH_RULE_GIVEN where --seq-len says so.
void CompletePositions(v1::Positions* positions);

}  // namespace posenc::command
