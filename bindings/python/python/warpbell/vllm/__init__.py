"""KV caches of vLLM on storage: ``WarpbellSpec`` for its ``OffloadingConnector``, and ``WarpbellConnector``, which survives failed loads.

    --kv-transfer-config '{"kv_connector": "WarpbellConnector", "kv_connector_module_path": "warpbell.vllm", "kv_role": "kv_both",
        "kv_load_failure_policy": "recompute", "kv_connector_extra_config": {"spec_name": "WarpbellSpec",
        "spec_module_path": "warpbell.vllm", "device": "soft:/mnt/kv/{rank}.img", "bytes_per_worker": 107374182400}}'

``docs/kv-store.md`` of the project describes the other settings.
"""

try:
    from ._connector import WarpbellConnector, WarpbellSpec
except ImportError as error:
    raise ImportError(f"the offloading interface of vLLM cannot be imported ({error}); install vllm 0.33.0 in this environment") from error

__all__ = ["WarpbellConnector", "WarpbellSpec"]
