"""`hotwirectl verify`: shows on a server that steering works, and that nobody else notices."""
