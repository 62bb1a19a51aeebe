"""The parts of the audit's document, each made from its part of the audit."""
