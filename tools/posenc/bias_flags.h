// The flags of bias methods: ALiBi's by their own names, the others' as --METHOD-FIELD.
#pragma once

#include <string>

#include <CLI/CLI.hpp>

#include "absl/status/statusor.h"
#include "posenc/v1/bias.pb.h"
#include "tools/posenc/request_flags.h"

namespace posenc::command {

// Written into while flags are parsed: must stay where it is.
class BiasMethodFlags {
 public:
  void Add(CLI::App& app);
  // --table and its layout, which go with a model too.
  void AddTable(CLI::App& app);
  bool has_table() const;
  // The first flag of a method that was given, or "".
  std::string First() const;
  // Without a method where only a table was given.
  absl::StatusOr<v1::BiasMethod> Get() const;
  // Whether the method takes a config.json beside its weights.
  bool TakesModel() const { return others_.has_swin_v2(); }

 private:
  v1::Alibi alibi_;
  v1::BiasMethod others_;
  bool nope_ = false;
  v1::BiasMethod table_;
};

// A bias: by --model, or by a method and its settings; either with a table. Swin v2 by both.
class BiasFlags {
 public:
  void Add(CLI::App& app);
  bool given() const;
  // For use without any: that no flag was given that means nothing then.
  absl::Status CheckUnused() const { return model_.CheckUnused(); }
  absl::StatusOr<v1::BiasMethod> Get() const;

 private:
  ModelFlags model_;
  BiasMethodFlags method_;
};

}  // namespace posenc::command
