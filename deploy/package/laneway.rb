# The formula of Homebrew, for the owner's tap; scripts/packages fills in version, address and sums.
class Laneway < Formula
  desc "Agent gateway: your agent in Telegram, on a schedule and behind an API"
  homepage "@ADDRESS@"
  version "@VERSION@"
  license "Apache-2.0"

  on_macos do
    on_arm do
      url "@ADDRESS@/laneway_@VERSION@_darwin_arm64.tar.gz"
      sha256 "@SUM:darwin_arm64@"
    end
    on_intel do
      url "@ADDRESS@/laneway_@VERSION@_darwin_amd64.tar.gz"
      sha256 "@SUM:darwin_amd64@"
    end
  end
  on_linux do
    on_arm do
      url "@ADDRESS@/laneway_@VERSION@_linux_arm64.tar.gz"
      sha256 "@SUM:linux_arm64@"
    end
    on_intel do
      url "@ADDRESS@/laneway_@VERSION@_linux_amd64.tar.gz"
      sha256 "@SUM:linux_amd64@"
    end
  end

  def install
    bin.install "laneway"
    generate_completions_from_executable(bin/"laneway", "completion")
    system bin/"laneway", "__man", man1
  end

  service do
    run [opt_bin/"laneway", "serve"]
    keep_alive successful_exit: false
    log_path var/"log/laneway.log"
    error_log_path var/"log/laneway.log"
  end

  test do
    assert_match "@VERSION@", shell_output("#{bin}/laneway version")
  end
end
