#include "tools/load/places.h"

#include <gtest/gtest.h>

namespace posenc::load::load_places_test {
namespace {

TEST(LoadPlaces, AreTakenUntilTheyAreDestroyed) {
  Places places(2, 0);
  auto one = places.Take(false), other = places.Take(false);
  ASSERT_TRUE(one && other);
  EXPECT_NE(one->index(), other->index());
  EXPECT_FALSE(places.Take(false));
  other.reset();
  EXPECT_TRUE(places.Take(false));
}

TEST(LoadPlaces, OnlySoManyAreVerifiable) {
  Places places(3, 1);
  auto one = places.Take(true), other = places.Take(true);
  EXPECT_TRUE(one->verifiable());
  EXPECT_FALSE(other->verifiable());
  one.reset();
  EXPECT_TRUE(places.Take(true)->verifiable());
}

TEST(LoadPlaces, WhatIsSpoiltIsNeverVerifiableAgain) {
  Places places(2, 2);
  size_t spoilt = 0;
  {
    auto one = places.Take(true);
    one->Spoil();
    spoilt = one->index();
  }
  // A spoilt place serves calls whose answers are not checked, and calls for which no other place is free.
  EXPECT_EQ(places.Take(false)->index(), spoilt);
  const auto clean = places.Take(true), other = places.Take(true);
  EXPECT_TRUE(clean->verifiable());
  EXPECT_NE(clean->index(), spoilt);
  EXPECT_EQ(other->index(), spoilt);
  EXPECT_FALSE(other->verifiable());
}

}  // namespace
}  // namespace posenc::load::load_places_test
