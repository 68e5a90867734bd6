// C++ interface of warpbell: the C interface (warpbell.h) with objects that release themselves, and errors as exceptions.
//
// docs/c-and-cpp.md of the project is an introduction. C++17 or newer; header files only. Everything is in `warpbell::host`, beside the
// device library in `warpbell`, so a program may write `namespace wb = warpbell::host;`. Errors: see warpbell/host/result.hpp.
#pragma once

#include <warpbell/host/argument.hpp>
#include <warpbell/host/engine.hpp>
#include <warpbell/host/graph.hpp>
#include <warpbell/host/handle.hpp>
#include <warpbell/host/kv.hpp>
#include <warpbell/host/region.hpp>
#include <warpbell/host/result.hpp>
#include <warpbell/host/run.hpp>
#include <warpbell/host/segments.hpp>
#include <warpbell/host/storage.hpp>
#include <warpbell/host/table.hpp>
#include <warpbell/host/world.hpp>

namespace warpbell {
namespace host {
inline namespace WARPBELL_HOST_KIND {

/// @brief Returns the version of the library, such as "0.1.0".
inline const char* version() noexcept { return wb_version(); }

/// @brief Examines this machine, as `warpbell doctor --json` does.
///
/// @param require Words `gpu`, `nvme`, `p2p`, `rdma`, `mlx5` and `verbs`, separated by commas, for what has to be possible. Unmet ones are in the report, and no error.
inline returned<std::string> doctor_report(const std::string& require = {}) {
  char* json = nullptr;
  const wb_code code = wb_doctor_report(require.c_str(), &json);
  return detail::give(code, [json] { return detail::take(json); });
}

}  // namespace WARPBELL_HOST_KIND
}  // namespace host
}  // namespace warpbell
