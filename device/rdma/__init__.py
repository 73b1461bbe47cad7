"""The engines that every RDMA adapter has, whatever its registers and entries look like.

An engine gets work that was read already and reports the results to its face. A face is the
package of one card: it reads and writes the bytes that the card's drivers know.
"""
