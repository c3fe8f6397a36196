// docs/model-types.md lists what posenc/model knows. Where this fails, its message holds the lists as they should be.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <functional>
#include <sstream>

#include "posenc/model/diffusers.h"
#include "posenc/model/model_types.h"

namespace posenc::model_types_page_test {
namespace {

constexpr size_t kLine = 120;

// A heading, and the names below it as lines of text.
std::string Section(const std::string& heading, std::vector<std::string_view> names) {
  std::sort(names.begin(), names.end());
  std::string text = fmt::format("\n**{}** ({})\n", heading, names.size()), line;
  for (size_t n = 0; n < names.size(); ++n) {
    const std::string word = fmt::format("`{}`{}", names[n], n + 1 < names.size() ? "," : "");
    if (line.size() + 1 + word.size() > kLine) {
      text += fmt::format("\n{}", line);
      line.clear();
    }
    line += fmt::format("{}{}", line.empty() ? "" : " ", word);
  }
  return text + fmt::format("\n{}\n", line);
}

std::vector<std::string_view> Names(const std::function<bool(const ModelType&)>& wanted) {
  std::vector<std::string_view> names;
  for (const ModelType* type : AllModelTypes()) {
    if (wanted(*type)) names.push_back(type->name);
  }
  return names;
}

std::string Lists() {
  const auto of = [](Scheme scheme) { return Names([scheme](const ModelType& t) { return t.scheme == scheme; }); };
  const auto rotary = [](auto wanted) {
    return Names([wanted](const ModelType& t) { return t.scheme == Scheme::kRotary && wanted(t); });
  };
  const auto several = [](const ModelType& t) { return t.mrope != MropeOrder::kNone; };
  const auto by_layer = [&](const ModelType& t) { return !several(t) && t.layers != Layers::kUniform; };
  std::string text = Section("Rotary, the same on every layer with attention",
                             rotary([&](const ModelType& t) { return !several(t) && !by_layer(t); }));
  text += Section("Rotary, by layer: other frequencies, or none", rotary(by_layer));
  text += Section("Rotary of several axes: M-RoPE", rotary(several));
  text += Section("Rotary over the axes of an image", of(Scheme::kAxial));
  text +=
      Section("ALiBi, or ALiBi where the file says so", Names([](const ModelType& t) {
                return t.scheme == Scheme::kBloomAlibi || t.scheme == Scheme::kMptAlibi || t.scheme == Scheme::kFalcon;
              }));
  text += Section("T5's buckets, of files of two stacks by `encoder` or `decoder`", of(Scheme::kT5));
  text += Section("Biases in windows, with the request's table",
                  Names([](const ModelType& t) { return t.scheme == Scheme::kSwin || t.scheme == Scheme::kBeit; }));
  text += Section("Biases in windows, of a network with the request's weights, by stage", of(Scheme::kSwinV2));
  text += Section("Terms with content, with the request's weights, where the file says so",
                  Names([](const ModelType& t) { return t.terms != Terms::kNone; }));
  text += Section("Learned tables of positions, which come with the request",
                  Names([](const ModelType& t) { return t.learned.has_value(); }));
  text += Section("Sines and cosines of positions, added to the input",
                  Names([](const ModelType& t) { return t.sines.has_value(); }));
  text += Section("The same of the cells of an image", Names([](const ModelType& t) { return t.grid.has_value(); }));
  text += Section("Files of several parts", of(Scheme::kParts));
  text += Section("diffusers, by `_class_name`", DiffusersClasses(true));
  text += "\n## What is named, and not selected\n";
  for (Scheme scheme : {Scheme::kLearned, Scheme::kSinusoidal, Scheme::kRelativeTerms, Scheme::kWindowBias,
                        Scheme::kOwnRotary, Scheme::kNone}) {
    std::string heading(SchemeName(scheme));
    heading[0] = static_cast<char>(std::toupper(heading[0]));
    text += Section(heading, Names([scheme](const ModelType& t) {
                      return t.scheme == scheme && t.terms == Terms::kNone && !t.learned && !t.sines && !t.grid;
                    }));
  }
  return text + Section("diffusers' classes of their own kind, or without positions", DiffusersClasses(false));
}

TEST(ModelTypesPage, ListsWhatThereIs) {
  std::ifstream file(std::string(POSENC_TEST_DATA) + "/../docs/model-types.md");
  std::ostringstream page;
  page << file.rdbuf();
  const std::string text = page.str(), mark = "\n## What is selected\n";
  const size_t begin = text.find(mark);
  ASSERT_NE(begin, std::string::npos);
  EXPECT_TRUE(text.substr(begin + mark.size()) == Lists()) << "below that heading there should be:\n" << Lists();
}

}  // namespace
}  // namespace posenc::model_types_page_test
