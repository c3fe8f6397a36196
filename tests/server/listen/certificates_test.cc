#include "server/listen/certificates.h"

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509v3.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace posenc::server {
namespace {

using ::testing::HasSubstr;
namespace fs = std::filesystem;

constexpr long kDay = 24 * 60 * 60;

std::string Read(BIO* bio) {
  char* bytes = nullptr;
  const long size = BIO_get_mem_data(bio, &bytes);
  std::string text(bytes, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

struct Pair {
  std::string certificate, key;
};

// Makes a certificate that it signs itself, valid for these seconds from now. Takes ownership of the key.
Pair MakePair(const std::string& name, long from = -kDay, long until = kDay, EVP_PKEY* key = EVP_EC_gen("P-256")) {
  X509* const certificate = X509_new();
  X509_set_version(certificate, 2);
  X509_gmtime_adj(X509_getm_notBefore(certificate), from);
  X509_gmtime_adj(X509_getm_notAfter(certificate), until);
  X509_NAME* const subject = X509_get_subject_name(certificate);
  X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_ASC, reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                             0);
  X509_set_issuer_name(certificate, subject);
  X509_set_pubkey(certificate, key);
  X509_sign(certificate, key, EVP_sha256());
  BIO* const certificate_pem = BIO_new(BIO_s_mem());
  BIO* const key_pem = BIO_new(BIO_s_mem());
  PEM_write_bio_X509(certificate_pem, certificate);
  PEM_write_bio_PrivateKey(key_pem, key, nullptr, nullptr, 0, nullptr, nullptr);
  X509_free(certificate);
  EVP_PKEY_free(key);
  return {Read(certificate_pem), Read(key_pem)};
}

class CertificateStoreTest : public testing::Test {
 protected:
  void SetUp() override {
    directory_ = fs::path(testing::TempDir()) / ("certificates" + std::to_string(getpid()));
    fs::create_directories(directory_);
    files_ = {directory_ / "cert", directory_ / "key", {directory_ / "ca"}};
    Write(first_);
    WriteFile(files_.client_cas[0], MakePair("ca").certificate);
  }
  void TearDown() override { fs::remove_all(directory_); }

  static void WriteFile(const std::string& path, const std::string& text) {
    std::ofstream(path + ".new") << text;
    fs::rename(path + ".new", path);
  }
  void Write(const Pair& pair) {
    WriteFile(files_.certificate, pair.certificate);
    WriteFile(files_.key, pair.key);
  }

  const Pair first_ = MakePair("first"), second_ = MakePair("second");
  fs::path directory_;
  TlsFiles files_;
};

TEST_F(CertificateStoreTest, TakesChangedFilesThatAreValid) {
  const auto store = CertificateStore::Load(files_);
  ASSERT_TRUE(store.ok()) << store.status();
  EXPECT_EQ((*store)->current()->chain, first_.certificate);
  (*store)->Reload();
  EXPECT_EQ((*store)->counters().reloads, 0);
  Write(second_);
  (*store)->Reload();
  EXPECT_EQ((*store)->current()->chain, second_.certificate);
  EXPECT_EQ((*store)->current()->key, second_.key);
  EXPECT_EQ((*store)->counters().reloads, 1);
  WriteFile(files_.client_cas[0], first_.certificate + second_.certificate);
  (*store)->Reload();
  EXPECT_THAT((*store)->current()->client_cas, HasSubstr(second_.certificate));
  EXPECT_EQ((*store)->counters().reloads, 2);
}

TEST_F(CertificateStoreTest, KeepsTheOldOnesOtherwise) {
  const auto store = CertificateStore::Load(files_);
  ASSERT_TRUE(store.ok()) << store.status();
  const std::string truncated = second_.certificate.substr(0, second_.certificate.size() / 2);
  const struct {
    const std::string& path;
    std::string text;
    std::string why;
  } cases[] = {
      {files_.certificate, "", "has no certificate"},
      {files_.certificate, truncated, "does not parse"},
      {files_.certificate, first_.certificate + truncated, "certificate 2 does not parse"},
      {files_.certificate, second_.certificate, "is not the key"},
      {files_.certificate, first_.certificate + second_.certificate, "is not issued by"},
      {files_.certificate, std::string(2 << 20, 'x'), "more than 1048576 bytes"},
      {files_.key, "", "has no private key"},
      {files_.key, second_.key, "is not the key"},
      {files_.key, "-----BEGIN ENCRYPTED PRIVATE KEY-----\nAAAA\n-----END ENCRYPTED PRIVATE KEY-----\n",
       "has no private"},
      {files_.client_cas[0], "", "has no certificate"},
      {files_.client_cas[0], "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", "does not parse"},
  };
  int64_t failures = 0;
  for (const auto& [path, text, why] : cases) {
    SCOPED_TRACE(why);
    const fs::path kept = directory_ / "kept";
    fs::copy_file(path, kept, fs::copy_options::overwrite_existing);
    WriteFile(path, text);
    EXPECT_THAT(std::string(CertificateStore::Load(files_).status().message()), HasSubstr(why));
    for (int n = 0; n < 2; ++n) (*store)->Reload();  // counted and logged once
    EXPECT_EQ((*store)->counters().failed_reloads, ++failures);
    EXPECT_EQ((*store)->current()->chain, first_.certificate);
    fs::rename(kept, path);
    (*store)->Reload();
  }
  fs::remove(files_.key);
  (*store)->Reload();
  EXPECT_EQ((*store)->counters().failed_reloads, ++failures);
  EXPECT_THAT(std::string(CertificateStore::Load(files_).status().message()), HasSubstr("--tls-key"));
  EXPECT_EQ((*store)->counters().reloads, 0);
}

TEST_F(CertificateStoreTest, RefusesAKeyThatIsTooWeak) {
  Write(MakePair("weak", -kDay, kDay, EVP_RSA_gen(512)));
  EXPECT_THAT(std::string(CertificateStore::Load(files_).status().message()), HasSubstr("is not accepted by OpenSSL"));
}

TEST_F(CertificateStoreTest, ChecksTimes) {
  Write(MakePair("old", -2 * kDay, -kDay));
  EXPECT_THAT(std::string(CertificateStore::Load(files_).status().message()), HasSubstr("expired at 20"));
  Write(MakePair("new", kDay, 2 * kDay));
  EXPECT_THAT(std::string(CertificateStore::Load(files_).status().message()), HasSubstr("is not valid before 20"));
  Write(first_);
  const auto store = CertificateStore::Load(files_);
  ASSERT_TRUE(store.ok()) << store.status();
  const auto left = (*store)->current()->not_after - std::chrono::system_clock::now();
  EXPECT_GT(left, std::chrono::hours(23));
  EXPECT_LT(left, std::chrono::hours(25));
}

// Files replaced one after another, while they are read, never become a mixture.
TEST_F(CertificateStoreTest, NeverMixesFiles) {
  const auto store = CertificateStore::Load(files_);
  ASSERT_TRUE(store.ok()) << store.status();
  std::atomic<bool> stop{false};
  std::thread writer([&] {
    while (!stop) {
      Write(second_);
      Write(first_);
    }
  });
  for (int n = 0; n < 1000; ++n) {
    (*store)->Reload();
    const auto current = (*store)->current();
    EXPECT_EQ(current->chain == first_.certificate, current->key == first_.key);
  }
  stop = true;
  writer.join();
}

}  // namespace
}  // namespace posenc::server
