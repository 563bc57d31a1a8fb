"""The optimal phases of one device that loads them from streaming memory."""
