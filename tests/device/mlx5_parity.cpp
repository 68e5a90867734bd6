// Compares our layouts with those of the system's own rdma-core header, where it is installed.
#include <cstdio>

#if __has_include(<infiniband/mlx5dv.h>)

#include <infiniband/mlx5dv.h>

#include <warpbell/mlx5/cqe.cuh>
#include <warpbell/mlx5/send_ring.cuh>

#include <cstddef>
#include <cstdlib>
#include <cstring>

using namespace warpbell;

static_assert(sizeof(mlx5_wqe_ctrl_seg) == mlx5::segment_bytes, "control segment");
static_assert(offsetof(mlx5_wqe_ctrl_seg, opmod_idx_opcode) == 0, "control segment");
static_assert(offsetof(mlx5_wqe_ctrl_seg, qpn_ds) == 4, "control segment");
static_assert(offsetof(mlx5_wqe_ctrl_seg, signature) == 8, "control segment");
static_assert(offsetof(mlx5_wqe_ctrl_seg, fm_ce_se) == 11, "control segment");
static_assert(offsetof(mlx5_wqe_ctrl_seg, imm) == 12, "control segment");
static_assert(sizeof(mlx5_wqe_raddr_seg) == mlx5::segment_bytes, "remote segment");
static_assert(offsetof(mlx5_wqe_raddr_seg, raddr) == 0 && offsetof(mlx5_wqe_raddr_seg, rkey) == 8, "remote segment");
static_assert(sizeof(mlx5_wqe_data_seg) == mlx5::segment_bytes, "data segment");
static_assert(offsetof(mlx5_wqe_data_seg, lkey) == 4 && offsetof(mlx5_wqe_data_seg, addr) == 8, "data segment");
static_assert(sizeof(mlx5_wqe_inl_data_seg) == 4, "inline header");
static_assert(sizeof(mlx5_wqe_atomic_seg) == mlx5::segment_bytes && offsetof(mlx5_wqe_atomic_seg, compare) == 8, "atomic segment");
static_assert(sizeof(mlx5_wqe_av) == 48 && offsetof(mlx5_wqe_av, dqp_dct) == 8, "address vector");
static_assert(offsetof(mlx5_wqe_av, stat_rate_sl) == 12 && offsetof(mlx5_wqe_av, fl_mlid) == 13, "address vector");
static_assert(offsetof(mlx5_wqe_av, rlid) == 14 && offsetof(mlx5_wqe_av, rmac) == 20, "address vector");
static_assert(offsetof(mlx5_wqe_av, tclass) == 26 && offsetof(mlx5_wqe_av, hop_limit) == 27, "address vector");
static_assert(offsetof(mlx5_wqe_av, grh_gid_fl) == 28 && offsetof(mlx5_wqe_av, rgid) == 32, "address vector");
static_assert(sizeof(mlx5_cqe64) == mlx5::cqe_bytes, "completion entry");
static_assert(offsetof(mlx5_cqe64, srqn_uidx) == 32 && offsetof(mlx5_cqe64, imm_inval_pkey) == 36, "completion entry");
static_assert(offsetof(mlx5_cqe64, byte_cnt) == 44 && offsetof(mlx5_cqe64, timestamp) == 48, "completion entry");
static_assert(mlx5::cqe_length_at + 12 == offsetof(mlx5_cqe64, byte_cnt), "completion entry");
static_assert(mlx5::cqe_data_bytes == 32 && MLX5_INLINE_SCATTER_32 == 1 << 2, "data in a completion entry");
static_assert(offsetof(mlx5_cqe64, sop_drop_qpn) == 56 && offsetof(mlx5_cqe64, wqe_counter) == 60, "completion entry");
static_assert(offsetof(mlx5_cqe64, op_own) == 63, "completion entry");
static_assert(sizeof(mlx5_err_cqe) == mlx5::cqe_bytes, "error entry");
static_assert(offsetof(mlx5_err_cqe, vendor_err_synd) == 54 && offsetof(mlx5_err_cqe, syndrome) == 55, "error entry");
static_assert(offsetof(mlx5_err_cqe, s_wqe_opcode_qpn) == 56 && offsetof(mlx5_err_cqe, wqe_counter) == 60, "error entry");

static_assert(mlx5::op_nop == +MLX5_OPCODE_NOP && mlx5::op_send_inval == +MLX5_OPCODE_SEND_INVAL, "opcode");
static_assert(mlx5::op_write == +MLX5_OPCODE_RDMA_WRITE && mlx5::op_write_imm == +MLX5_OPCODE_RDMA_WRITE_IMM, "opcode");
static_assert(mlx5::op_send == +MLX5_OPCODE_SEND && mlx5::op_send_imm == +MLX5_OPCODE_SEND_IMM, "opcode");
static_assert(mlx5::op_read == +MLX5_OPCODE_RDMA_READ, "opcode");
static_assert(mlx5::op_compare_swap == +MLX5_OPCODE_ATOMIC_CS && mlx5::op_fetch_add == +MLX5_OPCODE_ATOMIC_FA, "opcode");
static_assert(mlx5::op_masked_compare_swap == +MLX5_OPCODE_ATOMIC_MASKED_CS, "opcode");
static_assert(mlx5::op_masked_fetch_add == +MLX5_OPCODE_ATOMIC_MASKED_FA, "opcode");
static_assert(mlx5::signalled == +MLX5_WQE_CTRL_CQ_UPDATE && mlx5::solicited == +MLX5_WQE_CTRL_SOLICITED, "flags");
static_assert(mlx5::small_fence == +MLX5_WQE_CTRL_INITIATOR_SMALL_FENCE, "flags");
static_assert(mlx5::block_bytes == +MLX5_SEND_WQE_BB, "block");
static_assert(mlx5::inline_mark == static_cast<uint32_t>(MLX5_INLINE_SEG), "inline mark");
static_assert(mlx5::full_address == static_cast<uint32_t>(MLX5_EXTENDED_UD_AV), "address vector");
static_assert(offsetof(mlx5::qp_record, receive) == 4 * MLX5_RCV_DBR && offsetof(mlx5::qp_record, send) == 4 * MLX5_SND_DBR, "record");
static_assert(mlx5::uar_arm == +MLX5_CQ_DOORBELL, "doorbell");
static_assert(mlx5::cqe_requester == +MLX5_CQE_REQ && mlx5::cqe_requester_error == +MLX5_CQE_REQ_ERR, "completion");
static_assert(mlx5::cqe_responder_error == +MLX5_CQE_RESP_ERR && mlx5::cqe_invalid == +MLX5_CQE_INVALID, "completion");
static_assert(mlx5::syndrome_local_length == +MLX5_CQE_SYNDROME_LOCAL_LENGTH_ERR, "syndrome");
static_assert(mlx5::syndrome_local_qp_operation == +MLX5_CQE_SYNDROME_LOCAL_QP_OP_ERR, "syndrome");
static_assert(mlx5::syndrome_local_protection == +MLX5_CQE_SYNDROME_LOCAL_PROT_ERR, "syndrome");
static_assert(mlx5::syndrome_flushed == +MLX5_CQE_SYNDROME_WR_FLUSH_ERR, "syndrome");
static_assert(mlx5::syndrome_remote_invalid_request == +MLX5_CQE_SYNDROME_REMOTE_INVAL_REQ_ERR, "syndrome");
static_assert(mlx5::syndrome_remote_access == +MLX5_CQE_SYNDROME_REMOTE_ACCESS_ERR, "syndrome");
static_assert(mlx5::syndrome_retry_exceeded == +MLX5_CQE_SYNDROME_TRANSPORT_RETRY_EXC_ERR, "syndrome");
static_assert(mlx5::syndrome_rnr_retry_exceeded == +MLX5_CQE_SYNDROME_RNR_RETRY_EXC_ERR, "syndrome");

int main() {
  // Compares the header's own functions with ours.
  uint64_t state = 1;
  for (int i = 0; i < 10000; ++i) {
    state = state * 6364136223846793005ull + 1442695040888963407ull;
    const uint32_t qpn = static_cast<uint32_t>(state >> 40), key = static_cast<uint32_t>(state >> 13);
    const uint32_t length = static_cast<uint32_t>(state >> 7) & mlx5::max_piece_bytes;
    mlx5_wqe_ctrl_seg control = {};
    mlx5dv_set_ctrl_seg(&control, static_cast<uint16_t>(state), MLX5_OPCODE_RDMA_WRITE_IMM, 0, qpn, MLX5_WQE_CTRL_CQ_UPDATE, 3, 0, key);
    const order::quad c = mlx5::placed(mlx5::control_segment(mlx5::op_write_imm, mlx5::opmod_none, 3, mlx5::be32{key}), state,
                                       mlx5::queue_of(qpn), mlx5::signalled);
    mlx5_wqe_data_seg data = {};
    mlx5dv_set_data_seg(&data, length, key, state);
    const order::quad d = mlx5::data_segment(mlx5::local{state, mlx5::big(key)}, length);
    if (std::memcmp(&c, &control, sizeof c) != 0 || std::memcmp(&d, &data, sizeof d) != 0) {
      std::printf("turn %d: a segment differs from what mlx5dv.h makes\n", i);
      return EXIT_FAILURE;
    }
  }
  std::printf("layouts, constants and segments agree with infiniband/mlx5dv.h: ok\n");
}

#else

int main() { std::printf("SKIP: infiniband/mlx5dv.h is not installed (rdma-core's development package has it): ok\n"); }

#endif
